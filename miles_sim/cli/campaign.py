"""The `campaign` and `shrink` commands: random rollouts under random faults, and the smallest of what fails."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from miles_sim.cli.options import Checkout, Optimize, Packs, Python, TargetName
from miles_sim.exits import HOLDS, VIOLATED, honest

if TYPE_CHECKING:
    from miles_sim.campaign.found import Saved
    from miles_sim.campaign.run import Progress
    from miles_sim.campaign.settings import CampaignSettings
    from miles_sim.campaign.summary import Summary

# ruff: noqa: UP045 - the oldest Typer that we allow reads no `X | None`


def campaign(
    rollouts: Annotated[int, typer.Option(min=1, help="In all.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 0,
    faults: Annotated[
        Optional[list[str]],
        typer.Option(metavar="GLOB", help="Kinds of fault, as `http-*`. Repeatable. Default: all; `none`: none."),
    ] = None,
    contract: Annotated[
        Optional[list[str]], typer.Option(metavar="GLOB", help="Contracts, as `faults/*`. Repeatable. Default: all.")
    ] = None,
    contracts: Packs = None,
    per_unit: Annotated[
        int, typer.Option("--per-scenario", min=1, max=256, help="Rollouts that share one random scenario.")
    ] = 8,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes of this machine.")] = 1,
    ray: Annotated[
        Optional[str],
        typer.Option(metavar="ADDRESS", help="Play on a Ray cluster: `auto`, `host:port`. Needs the `ray` extra."),
    ] = None,
    out: Annotated[
        Optional[Path],
        typer.Option(
            metavar="DIR", help="What is done, so that a killed campaign goes on. Default: miles-sim-campaign-SEED."
        ),
    ] = None,
    json: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="Write the summary as JSON; `-`: to standard output.")
    ] = None,
    shrink: Annotated[
        int, typer.Option("--shrink", min=0, help="Different violations to shrink; the others are saved as drawn.")
    ] = 10,
    target: TargetName = "reference",
    python: Python = None,
    optimize: Optimize = False,
    checkout: Checkout = None,
) -> None:
    """Play random scenarios under random faults, and judge each.

    The same seed gives the same results, on any number of processes or machines. Stopped or killed, the same command
    goes on where it was. Each violation is written to DIR/violations as a scenario file with the line that shows it.

    \b
    miles-sim campaign --rollouts 100000 --workers 2 --json summary.json
    miles-sim campaign --faults 'http-*' --faults 'transport-reset-*' --target miles --python venv/bin/python
    """
    with honest():
        from miles_sim.campaign.found import saved
        from miles_sim.campaign.local import local
        from miles_sim.campaign.on_ray import on_ray
        from miles_sim.campaign.run import run
        from miles_sim.campaign.settings import CampaignSettings
        from miles_sim.campaign.store import Store
        from miles_sim.cli import choices

        if json is not None and str(json) != "-":
            choices.chosen_files(json=json)
        if ray is not None and workers != 1:
            raise choices.Impossible(f"workers: {workers} beside --ray: a cluster has as many as its CPUs")
        if ":" in target and "" not in sys.path:
            sys.path.insert(0, "")  # an adapter may lie in the current folder
        choices.chosen_rules(contracts, contract)  # what cannot be is refused here, not by each process
        settings = CampaignSettings(
            seed=seed,
            rollouts=rollouts,
            per_unit=per_unit,
            faults=() if faults == ["none"] else tuple(faults or ("*",)),
            contracts=tuple(contract or ()),
            packs=choices.absolute(contracts),
            target=target,
            python=None if python is None else str(python),
            optimize=optimize,
            checkout=None if checkout is None else str(checkout.absolute()),
        )
        folder = choices.chosen_folder(out=out or Path(f"miles-sim-campaign-{seed}"))
        runner = on_ray(ray) if ray is not None else local(workers)
        found = []
        with _stopped_is_told(settings, folder):
            with _shown(rollouts) as progress:
                summary = run(settings, folder, runner, progress=progress)
            if summary.violations:
                options = choices.TargetChoice(target, python, optimize, checkout).options(contracts)
                with Store(folder, settings) as store:
                    found = saved(settings, store.units(), folder / "violations", shrunk=shrink, options=options)
        (folder / "summary.json").write_text(summary.model_dump_json(indent=2) + "\n", "utf-8")
        _print(summary, found, to_stderr=str(json) == "-")
        if json is not None:
            text = summary.model_dump_json(indent=2)
            typer.echo(text) if str(json) == "-" else json.write_text(text + "\n", "utf-8")
    raise typer.Exit(VIOLATED if summary.violations else HOLDS)


def shrink(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario's name, `name/v1`, or a YAML file.")],
    contract: Annotated[
        Optional[str], typer.Option(metavar="GLOB", help="The contract that it violates. Default: the first one.")
    ] = None,
    contracts: Packs = None,
    plays: Annotated[int, typer.Option(min=1, help="Most plays to spend.")] = 500,
    out: Annotated[
        Optional[Path],
        typer.Option(metavar="FILE", help="Where the smallest one is written. Default: standard output."),
    ] = None,
    target: TargetName = "reference",
    python: Python = None,
    optimize: Optimize = False,
    checkout: Checkout = None,
) -> None:
    """Find the fewest faults and the smallest scenario that fail.

    What is left still violates the contract. Exit code 1 where one was found, 0 where the scenario violates nothing.

    \b
    miles-sim shrink miles-sim-campaign-0/violations/0000017-faults-nothing-false.yaml --out small.yaml
    """
    with honest():
        from miles_sim.campaign.found import violates
        from miles_sim.campaign.settings import CampaignSettings
        from miles_sim.campaign.shrink import shrink as shrunk
        from miles_sim.campaign.unit import UnitPlayer
        from miles_sim.cli import choices
        from miles_sim.scenarios.written import scenario_yaml

        if out is not None:
            choices.chosen_files(out=out)
        chosen, sessions = choices.chosen_sessions(scenario)
        session = asyncio.run(choices.TargetChoice(target, python, optimize, checkout).served(chosen, sessions))
        settings = CampaignSettings(
            rollouts=1,
            contracts=(contract,) if contract else (),
            packs=choices.absolute(contracts),
            target=target,
            python=None if python is None else str(python),
            optimize=optimize,
            checkout=None if checkout is None else str(checkout),
        )
        with UnitPlayer(settings) as player:
            _, judgements = player.judged(chosen, session)
            broken = next((judgement.rule.id for judgement in judgements if judgement.violations), None)
            if broken is None:
                typer.echo(f"{chosen.name}/{session} violates nothing", err=True)
                raise typer.Exit(HOLDS)
            result = shrunk(chosen, lambda one: violates(player, one, session, broken), plays=plays)
        text = scenario_yaml(result.scenario, comment=f"Violates {broken} under {session}.")
        typer.echo(text, nl=False) if out is None else out.write_text(text, "utf-8")
        left = len(result.scenario.faults)
        end = "" if result.complete else f"; stopped at {plays}, so it may not be the smallest"
        typer.echo(
            f"{broken}: {len(chosen.faults)} faults down to {left}, {len(chosen.rollouts)} rollouts to "
            f"{len(result.scenario.rollouts)}, in {result.plays} plays{end}",
            err=True,
        )
    raise typer.Exit(VIOLATED)


@contextmanager
def _stopped_is_told(settings: "CampaignSettings", folder: Path) -> Iterator[None]:
    """Who stops it learns how much of it is done, and that it is not lost."""
    from miles_sim.campaign.store import Store

    try:
        yield
    except KeyboardInterrupt:
        with Store(folder, settings) as store:
            done = sum(map(settings.rollouts_of, range(store.done)))
        typer.echo(f"stopped after {done} of {settings.rollouts} rollouts; the same command goes on", err=True)
        raise


@contextmanager
def _shown(rollouts: int) -> Iterator["Progress | None"]:
    """Live counts on standard error; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=rollouts)
        yield lambda tally: bar.update(
            task,
            completed=tally.rollouts,
            description=f"{tally.fired} faults, {tally.violations} violations, {tally.false_samples} false",
        )


def _print(summary: "Summary", found: "list[Saved]", *, to_stderr: bool) -> None:
    from rich.table import Table

    from miles_sim.report.console import console

    out = console(sys.stderr if to_stderr else sys.stdout)
    table = Table(box=None, pad_edge=False)
    for name in ("kind", "layer", "verdict"):
        table.add_column(name, no_wrap=True)
    for name in ("fired", "rollouts", "idle", "violated"):
        table.add_column(name, justify="right")
    for kind in summary.by_kind:
        figures = (kind.fired, kind.rollouts, kind.idle, kind.violated)
        table.add_row(kind.kind, kind.layer, kind.verdict, *map(str, figures))
    out.print(table, soft_wrap=True)
    for (contract, message), alike in _alike(found).items():
        telling = min(alike, key=lambda one: one.plays is None)
        small = "as drawn" if telling.plays is None else f"shrunk in {telling.plays} plays"
        count = f"{len(alike)} scenarios, one of them {small}" if len(alike) > 1 else f"1 scenario, {small}"
        out.print(f"\n{contract}: {message} ({count})\n  {telling.repro}", soft_wrap=True)
    rate = "" if summary.rollouts_per_second is None else f", {summary.rollouts_per_second:g} rollouts a second"
    out.print(
        f"\n{summary.rollouts} rollouts in {summary.scenarios} scenarios, {summary.faults_fired} faults fired, "
        f"{summary.violations} violations, {summary.false_samples} false samples{rate}",
        soft_wrap=True,
    )


def _alike(found: "list[Saved]") -> "dict[tuple[str, str], list[Saved]]":
    groups: dict[tuple[str, str], list[Saved]] = {}
    for one in found:
        groups.setdefault((one.contract, one.message), []).append(one)
    return groups
