"""The `run` command: one scenario, played and shown."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from miles_sim.cli.options import AsJson, Checkout, Optimize, Python, Seed, TargetName
from miles_sim.exits import honest

if TYPE_CHECKING:
    from miles_sim.verify.rule import Case

# ruff: noqa: UP045 - the oldest Typer that we allow reads no `X | None`


def run(
    scenario: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A named scenario, as `tools` or `tools/v1`, or a YAML file.")
    ],
    session: Annotated[
        Optional[str],
        typer.Option(
            metavar="v1|v2|direct", help="Session server version. Default: the latest that scenario and target have."
        ),
    ] = None,
    target: TargetName = "reference",
    python: Python = None,
    optimize: Optimize = False,
    checkout: Checkout = None,
    seed: Seed = 0,
    faults_out: Annotated[
        Optional[Path],
        typer.Option(
            metavar="FILE",
            help="Write the scenario with one fault for each that fired, at its place: played again, it does the same.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Play one scenario and show what came out.

    The tree of generations, the samples and who wrote which of their ids, the batch, the faults that fired.

    \b
    miles-sim run compaction-summary
    miles-sim run my-scenario.yaml --session v1 --json
    miles-sim run fault-transport --faults-out again.yaml
    """
    with honest():
        from miles_sim.cli import choices
        from miles_sim.report.case import case_text
        from miles_sim.verify.play import play

        choices.chosen_files(faults_out=faults_out)
        chosen, sessions = choices.chosen_sessions(scenario, session)
        seeded = chosen.model_copy(update={"seed": chosen.seed + seed})

        async def work() -> "Case":
            async with choices.TargetChoice(target, python, optimize, checkout).opened() as (opened, network):
                version = await choices.served(opened, seeded, sessions)
                return await play(seeded, opened, session=version, network=network)

        case = asyncio.run(work())
        if faults_out is not None:
            faults_out.write_text(_again(case), encoding="utf-8")
        if json:
            import orjson

            parts = {"scenario": case.scenario, "ledger": case.ledger, "observation": case.observation}
            document = {name: part.model_dump(mode="json", by_alias=True) for name, part in parts.items()}
            sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
        else:
            typer.echo(case_text(case), nl=False)


def _again(case: "Case") -> str:
    """The scenario's file, its faults those that fired."""
    from miles_sim.faults.journal import explicit
    from miles_sim.scenarios.written import scenario_yaml

    told = explicit(case.scenario.faults, case.ledger.fired)
    scenario = case.scenario.model_copy(update={"faults": told, "sessions": (case.session,)})
    return scenario_yaml(scenario, comment=f"What fired in {case.name}.")
