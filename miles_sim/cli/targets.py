"""Commands about implementations under contract: `doctor`, `compare`, `bisect`, `baseline`, `digest`, …"""

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from miles_sim.cli.options import AsJson, Checkout, Optimize, Packs, Python, Seed, TargetName
from miles_sim.exits import HOLDS, IMPOSSIBLE, VIOLATED, honest

if TYPE_CHECKING:
    from miles_sim.cli.choices import TargetChoice
    from miles_sim.document import Document
    from miles_sim.verify.bisect import Bisection
    from miles_sim.verify.doctor import Diagnosis

# ruff: noqa: UP045 - the oldest Typer that we allow reads no `X | None`
ReportFile = Annotated[Path, typer.Argument(metavar="REPORT.json", help="A report, as `verify --json` writes it.")]
Before = Annotated[Path, typer.Argument(metavar="BEFORE.json", help="A report, as `verify --json` writes it.")]
After = Annotated[Path, typer.Argument(metavar="AFTER.json", help="Another, of the same target after a change.")]


def doctor(
    target: TargetName = "miles",
    python: Python = None,
    optimize: Optimize = False,
    checkout: Checkout = None,
    json: AsJson = False,
) -> None:
    """Say whether a target can be put under contract.

    What is there, what is missing and how to install it; then it plays one rollout.

    \b
    miles-sim doctor --python venv/bin/python
    miles-sim doctor --python venv/bin/python --checkout miles/

    Exit code: 0 it can, 2 it cannot.
    """
    with honest():
        from miles_sim.cli.choices import TargetChoice
        from miles_sim.report.diagnosis import diagnosis_lines

        found = asyncio.run(_examined(TargetChoice(target, python, optimize, checkout)))
        _print(found, diagnosis_lines(found), json)
    raise typer.Exit(HOLDS if found.well else IMPOSSIBLE)


async def _examined(choice: "TargetChoice") -> "Diagnosis":
    from miles_sim.targets.catalog import UnknownTargetError
    from miles_sim.verify.doctor import Diagnosis, examine

    asked = Diagnosis(
        target=choice.name, python=str(choice.python or ""), checkout=str(choice.checkout) if choice.checkout else ""
    )
    try:
        async with choice.opened() as (opened, network):
            return await examine(opened, network, asked)
    except UnknownTargetError as error:
        return asked.model_copy(update={"problem": str(error)})


def compare(before: Before, after: After, json: AsJson = False) -> None:
    """Say what got worse and what got better between two reports.

    \b
    miles-sim verify --target miles --checkout main/ --json main.json
    miles-sim verify --target miles --checkout branch/ --json branch.json
    miles-sim compare main.json branch.json

    Exit code: 0 nothing got worse, 1 something is violated that was not, or that held and is not seen any more.
    """
    with honest():
        from miles_sim.report.history import comparison_lines
        from miles_sim.verify.compare import compare as compared
        from miles_sim.verify.compare import load_report

        found = compared(load_report(before), load_report(after))
        _print(found, comparison_lines(found), json)
    raise typer.Exit(HOLDS if found.holds else VIOLATED)


def bisect(
    checkout: Annotated[Path, typer.Option(metavar="PATH", help="A git checkout of the target; it stays as it is.")],
    good: Annotated[str, typer.Option(metavar="REV", help="A commit at which the contract holds.")],
    bad: Annotated[str, typer.Option(metavar="REV", help="A later one at which it is violated.")],
    contract: Annotated[list[str], typer.Option(metavar="GLOB", help="Contracts, as `identity/*`. Repeatable.")],
    scenario: Annotated[
        Optional[list[str]], typer.Option(metavar="GLOB", help="Scenarios to play. Repeatable. Default: all.")
    ] = None,
    contracts: Packs = None,
    target: TargetName = "miles",
    python: Python = None,
    optimize: Optimize = False,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Find the first commit at which a contract is violated.

    Works in a folder of its own; the checkout and its git directory are only read. A commit that cannot be imported
    is skipped.

    \b
    miles-sim bisect --checkout miles/ --good v0.2.0 --bad main --contract selection/subagent-kept
    """
    with honest():
        from miles_sim.cli import choices
        from miles_sim.report.history import bisection_lines, step_line
        from miles_sim.targets.base import TargetError
        from miles_sim.targets.catalog import UnknownTargetError
        from miles_sim.verify.bisect import State, state_of
        from miles_sim.verify.bisect import bisect as bisected
        from miles_sim.verify.run import verify

        rules, cases = choices.chosen_rules(contracts, contract), choices.chosen_cases(scenario)

        async def attempt(tree: Path) -> tuple[State, str]:
            try:
                async with choices.TargetChoice(target, python, optimize, tree).opened() as (opened, network):
                    done = await verify(cases, opened, rules, network=network, seed=seed, complete=False)
            except (TargetError, UnknownTargetError) as error:
                return State.SKIP, str(error).replace(str(tree), str(checkout))
            return state_of(done.report)

        async def work() -> "Bisection":
            return await bisected(checkout, good, bad, attempt, lambda step: typer.echo(step_line(step), err=True))

        found = asyncio.run(work())
        _print(found, bisection_lines(found), json)
    raise typer.Exit(HOLDS if found.first_bad else VIOLATED)


def baseline(
    report: ReportFile,
    known: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="A baseline whose reasons and links are kept.")
    ] = None,
    contracts: Packs = None,
) -> None:
    """Print the baseline of a report: what is violated, by contract.

    What has no reason yet says TODO.

    \b
    miles-sim baseline report.json --known contracts/baselines/miles-rl-0.0.2.yaml
    """
    with honest():
        from miles_sim.cli import choices
        from miles_sim.verify.baseline import load_baseline
        from miles_sim.verify.compare import load_report
        from miles_sim.verify.draft import baseline_text, draft

        every = {rule.id for rule in choices.chosen_rules(contracts, None)}
        old = load_baseline(known, contracts=every) if known else None
        typer.echo(baseline_text(draft(load_report(report), old)), nl=False)


def digest(
    report: ReportFile,
    label: Annotated[str, typer.Option(metavar="TEXT", help="What its column is headed with.")],
    date: Annotated[str, typer.Option(metavar="YYYY-MM-DD", help="The day of the run.")],
) -> None:
    """Print a report boiled down to a few numbers a contract.

    It is to be committed; `verdicts` makes a table of such files.

    \b
    miles-sim digest report.json --label 'my branch' --date 2026-08-21
    """
    with honest():
        from miles_sim.cli.choices import chosen_date
        from miles_sim.verify.compare import load_report
        from miles_sim.verify.digest import digest as digested

        day = chosen_date(date)
        _print(digested(load_report(report), label=label, date=day), (), json=True)


def verdicts(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Digests as `*.json`, columns by file name.")],
) -> None:
    """Print contracts × targets as a Markdown page, from digests. `history.json` adds bugs before and after a fix."""
    with honest():
        from miles_sim.cli.choices import json_files
        from miles_sim.report.verdicts import verdict_page
        from miles_sim.verify.digest import load_digests, load_history

        history = folder / "history.json"
        files = [file for file in json_files(folder) if file != history]
        page = verdict_page(load_digests(files), load_history(history) if history.is_file() else None)
        typer.echo(page, nl=False)


def rows(
    file: Annotated[Path, typer.Argument(metavar="ROWS.json", help="Known bugs, and the contracts that report them.")],
    report: Annotated[
        Optional[Path], typer.Option(metavar="REPORT.json", help="Fill the rows in from this run, and print them.")
    ] = None,
    date: Annotated[
        Optional[str], typer.Option(metavar="YYYY-MM-DD", help="With --report: the day of the run.")
    ] = None,
) -> None:
    """Print known bugs × the contracts that report them, in Markdown.

    With --report the rows are filled in from a run, and printed as JSON.

    \b
    miles-sim rows docs/open-rows.json --report august.json --date 2026-08-21
    """
    with honest():
        from miles_sim.cli.choices import Impossible, chosen_date
        from miles_sim.report.open_rows import open_rows_page
        from miles_sim.verify.compare import load_report
        from miles_sim.verify.open_rows import filled, load_open_rows

        if date is not None and report is None:
            raise Impossible(f"date: {date}: of use with --report alone")
        found = load_open_rows(file)
        if report is None:
            typer.echo(open_rows_page(found), nl=False)
            return
        _print(filled(found, load_report(report), date=chosen_date(date or found.date)), (), json=True)


def _print(document: "Document", lines: Iterable[str], json: bool) -> None:
    """The document on standard output, or what it says in lines."""
    if not json:
        for line in lines:
            typer.echo(line)
        return
    import orjson

    text = orjson.dumps(document.model_dump(mode="json", by_alias=True), option=orjson.OPT_INDENT_2)
    sys.stdout.buffer.write(text + b"\n")
