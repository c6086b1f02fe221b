"""Several processes that play and judge on miles-sim's own implementation; the report is the same as from one."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from miles_sim.resources import CONTRACTS
from miles_sim.scenarios.model import Scenario, SessionVersion
from miles_sim.targets.base import PlayError, Target
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.transport import LocalNetwork
from miles_sim.verify.collector import Collector
from miles_sim.verify.judge import Judgement
from miles_sim.verify.pack import combine, load_pack
from miles_sim.verify.report import Verdict
from miles_sim.verify.rule import Case, Rule, Violation
from miles_sim.verify.run import judged
from miles_sim.verify.survival import broken_off, play_ends
from miles_sim.workers import Workers

AHEAD = 2
"""Cases handed out for each process: none waits for the next."""


class Told(NamedTuple):
    """A judgement on its way between processes: its rule, which is code, stands on both sides."""

    rule: str
    verdict: Verdict
    witnesses: int
    violations: tuple[Violation, ...]
    reason: str


class Processes:
    """A context manager. `packs`: folders of own contracts, beside the built-in ones; `rules`: those that judge."""

    def __init__(self, workers: int, rules: Sequence[Rule], packs: Sequence[Path] = ()) -> None:
        self.plays_at_once = AHEAD * workers
        self._rules = {rule.id: rule for rule in (*rules, play_ends)}
        self._in_order = list(rules)
        chosen = tuple(rule.id for rule in rules), tuple(map(str, packs))
        self._pool = Workers(workers, _begin, chosen)

    def __enter__(self) -> "Processes":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    async def judged(self, scenario: Scenario, session: SessionVersion) -> tuple[Case | None, list[Judgement]]:
        """As `run.judged`. A process that dies is the end of every play that has not been handed back."""
        name = f"{scenario.name}/{session}"
        try:
            case, told = await asyncio.get_running_loop().run_in_executor(self._pool, _judged, scenario, session)
        except BrokenProcessPool:
            return None, broken_off(
                name, PlayError("a process that plays died", "a process that plays died"), self._in_order
            )
        return case, [
            Judgement(self._rules[one.rule], name, one.verdict, one.witnesses, one.violations, one.reason)
            for one in told
        ]


@dataclass
class _Side:
    """What a process plays with, as long as it lives."""

    loop: asyncio.AbstractEventLoop
    network: LocalNetwork
    target: Target
    rules: Sequence[Rule]
    collector: Collector


_side: _Side | None = None


def _begin(ids: Sequence[str], packs: Sequence[str]) -> None:
    """Of a process: what agents do wrong the report says."""
    global _side
    logging.getLogger("miles_sim").addHandler(logging.NullHandler())
    every = {rule.id: rule for rule in combine([load_pack(CONTRACTS), *map(load_pack, packs)])}
    network = LocalNetwork()
    target, rules = ReferenceTarget(network), [every[id] for id in ids]
    _side = _Side(asyncio.new_event_loop(), network, target, rules, Collector().__enter__())


def _judged(scenario: Scenario, session: SessionVersion) -> tuple[Case | None, list[Told]]:
    if _side is None:
        raise RuntimeError("a process plays before it has begun")
    work = judged(scenario, session, _side.target, _side.rules, network=_side.network)
    case, judgements = _side.loop.run_until_complete(work)
    _side.collector.played()
    return case, [Told(j.rule.id, j.verdict, j.witnesses, j.violations, j.reason) for j in judgements]
