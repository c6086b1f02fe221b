"""The contract pack as a judge: plays scenarios on the reference target until one tells."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from .mutants import ROOT

SNAPSHOTS = ROOT / "contracts" / "__snapshots__" / "test_snapshots"
PATIENCE = 10.0
"""Seconds for one play, which takes hundredths of one."""


@dataclass(frozen=True)
class Broken:
    """The first thing that was not as it must be."""

    verdict: str
    """`rule`, `snapshot`, or `crash`."""
    by: str


@cache
def scenarios() -> dict[str, Any]:
    """The library, read and validated once."""
    from miles_sim.scenarios import library

    return {name: library.load(name) for name in library.names()}


@cache
def rules() -> tuple[Any, ...]:
    from miles_sim.verify.pack import load_pack

    return load_pack()


def names() -> list[str]:
    """All cases, as `scenario/session`."""
    return [f"{name}/{session}" for name, scenario in scenarios().items() for session in scenario.sessions]


def first_broken(cases: Iterable[str], *, by_rule_alone: bool = False) -> Broken | None:
    """What the first case that is not as it must be violates; None if all hold.

    A case whose rules all pass is compared with its snapshot too, unless `by_rule_alone`.
    """
    chosen = set(cases)
    joint = [rule for rule in rules() if rule.scope == "scenario"]
    done: set[str] = set()
    for case in cases:
        scenario = scenarios()[case.split("/")[0]]
        if scenario.name in done:
            continue
        done.add(scenario.name)
        sessions = [s for s in scenario.sessions if f"{scenario.name}/{s}" in chosen or joint]
        for broken in _scenario(scenario, sessions, by_rule_alone):
            return broken
    return None


def _scenario(scenario: Any, sessions: list[str], by_rule_alone: bool) -> Iterator[Broken]:
    from miles_sim.report.case import case_text
    from miles_sim.targets.base import PlayError
    from miles_sim.verify.judge import judge, judge_scenario

    cases = {}
    for session in sessions:
        name = f"{scenario.name}/{session}"
        try:
            case = asyncio.run(_played(scenario, session))
        except PlayError as error:
            yield Broken("rule", f"session/play-ends: {error}")
            return
        except Exception as error:  # nothing could be played at all
            yield Broken("crash", f"{name}: {type(error).__name__}: {error}")
            return
        cases[session] = case
        yield from _violations(judge(case, rules()))
        if not by_rule_alone and _snapshot(scenario.name, session) not in (None, case_text(case)):
            yield Broken("snapshot", name)
    if len(cases) > 1:
        yield from _violations(judge_scenario(cases, rules(), frozenset()))


async def _played(scenario: Any, session: str) -> Any:
    from miles_sim.targets.reference import ReferenceTarget
    from miles_sim.transport import LocalNetwork
    from miles_sim.verify.play import play

    network = LocalNetwork()
    try:
        target = ReferenceTarget(network)
        case = await play(scenario, target, session=session, network=network, timeout=PATIENCE)  # type: ignore[arg-type]
        return replace(case, capabilities=case.capabilities | {"python-O"})
    finally:
        await network.aclose()


def _violations(judgements: Iterable[Any]) -> Iterator[Broken]:
    for judgement in judgements:
        if judgement.violations:
            yield Broken("rule", f"{judgement.rule.id}: {judgement.case}: {judgement.violations[0].message}")


@cache
def _snapshot(name: str, session: str) -> str | None:
    path = SNAPSHOTS / f"test_case[{name}-{session}].txt"
    return path.read_text(encoding="utf-8") if path.exists() else None
