"""The `search` command: random scenarios until a contract is violated, then the smallest that still violates it."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from miles_sim.cli.options import Checkout, Optimize, Packs, Python, TargetName
from miles_sim.exits import HOLDS, VIOLATED, honest

if TYPE_CHECKING:
    from miles_sim.verify.search import Found

# ruff: noqa: UP045 - the oldest Typer that we allow reads no `X | None`


def search(
    contract: Annotated[
        Optional[list[str]], typer.Option(metavar="GLOB", help="Contracts, as `tokens/*`. Repeatable. Default: all.")
    ] = None,
    examples: Annotated[int, typer.Option(min=1, help="Scenarios to draw; shrinking plays more.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn: the same seed, the same scenarios.")] = 0,
    most: Annotated[int, typer.Option("--most", min=1, help="Contracts to find violated before it ends.")] = 1,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where each scenario found is written; made if it is not there.")
    ] = Path("miles-sim-found"),
    promote: Annotated[
        Optional[str], typer.Option(metavar="NAME", help="Put the first one found into the library under this name.")
    ] = None,
    library: Annotated[
        Optional[Path],
        typer.Option("--library", metavar="DIR", help="The library's folder. Default: the built-in one."),
    ] = None,
    contracts: Packs = None,
    target: TargetName = "reference",
    python: Python = None,
    optimize: Optimize = False,
    checkout: Checkout = None,
) -> None:
    """Search for a scenario that violates a contract, and shrink it.

    Needs the `test` extra. Each is written as soon as it is found: who stops a search has what it found so far.

    Known violations of a baseline are found like any other; leave their contracts out with --contract.

    \b
    miles-sim search --contract 'tokens/*' --examples 500
    miles-sim search --target miles --python venv/bin/python --contract 'selection/*' --promote retry-at-the-root
    """
    with honest():
        from miles_sim.cli import choices
        from miles_sim.verify.found import File, free, promoted, written
        from miles_sim.verify.search import search as searched

        rules = choices.chosen_rules(contracts, contract)
        chosen = choices.TargetChoice(target, python, optimize, checkout)
        choices.chosen_folder(out=out)
        place = free(promote, library) if promote else None
        files: list[File] = []

        def keep(found: "Found") -> None:
            files.append(written(found, out, command=("miles-sim", "verify", *chosen.options(contracts))))

        with choices.shown_search() as tried:
            outcome = searched(chosen.opened, rules, examples=examples, seed=seed, most=most, tried=tried, told=keep)
        for found, file in zip(outcome.found, files, strict=True):
            _print(found, file.path, file.repro)
        if place is not None and outcome.found:
            typer.echo(f"promoted: {promoted(outcome.found[0], place)}")
        told = "nothing" if not outcome.found else ", ".join(found.contract for found in outcome.found)
        typer.echo(f"{outcome.drawn} scenarios drawn, {outcome.played} played, found: {told}")
    raise typer.Exit(VIOLATED if outcome.found else HOLDS)


def _print(found: "Found", file: Path, repro: str) -> None:
    """What is violated in it, the tree, the sample with the offending tokens, and how to see it again."""
    from miles_sim.report.console import console, print_violation

    print_violation(found.run.report, found.run.cases, found.contract, console(sys.stdout))
    if not found.steady:
        typer.echo("  not steady: the very same scenario was not violated each time it was played")
    typer.echo(f"  written: {shlex.quote(str(file))}")
    typer.echo(f"  {repro}")
    typer.echo("")
