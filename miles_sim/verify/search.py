"""Searching: random scenarios against a target until a contract is violated, then the smallest that still violates it.

Needs the `test` extra. Hypothesis draws and shrinks; the same seed and version of it search the same scenarios.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field

from miles_sim.scenarios.model import Scenario
from miles_sim.targets.base import Target
from miles_sim.transport import LocalNetwork
from miles_sim.verify.farewell import cancel_all
from miles_sim.verify.report import FAILING, Result, Verdict
from miles_sim.verify.rule import Rule
from miles_sim.verify.run import Run, verify

Opened = Callable[[], AbstractAsyncContextManager[tuple[Target, LocalNetwork | None]]]
"""Opens the target, and the network that it shares."""
Tried = Callable[[int, int], None]
"""Called with (scenarios played, of how many drawn at most) before each play; shrinking plays count, too."""


@dataclass(frozen=True)
class Found:
    """A contract, and the smallest scenario found that violates it."""

    contract: str
    scenario: Scenario
    run: Run
    """That scenario judged by every rule of the search."""
    steady: bool = True
    """It was violated again when the very same scenario was played once more."""

    @property
    def results(self) -> tuple[Result, ...]:
        """What is violated, the contract's own first."""
        wrong = [result for result in self.run.report.results if result.verdict is Verdict.VIOLATION]
        return tuple(sorted(wrong, key=lambda result: result.contract != self.contract))


@dataclass(frozen=True)
class Outcome:
    """What a search came to."""

    drawn: int
    """Scenarios drawn, those of shrinking not counted."""
    played: int
    found: tuple[Found, ...]


class SearchError(RuntimeError):
    """A search that cannot begin."""


def search(
    opened: Opened,
    rules: Sequence[Rule],
    *,
    examples: int = 200,
    seed: int = 0,
    most: int = 1,
    tried: Tried | None = None,
    told: Callable[[Found], None] | None = None,
) -> Outcome:
    """Up to `most` contracts, each with its smallest scenario, from `examples` drawn scenarios in all.

    `told` is given each as soon as it is as small as it gets.

    A contract that was found violated no longer ends the search, but still blocks what stands on it. Raises
    SearchError without Hypothesis, TargetError for a target that cannot be used.
    """
    try:
        import hypothesis  # noqa: F401
    except ImportError:
        raise SearchError("search needs hypothesis: pip install 'miles-sim[test]'") from None
    with _Player(opened, rules, tried, examples) as player:
        found: list[Found] = []
        while len(found) < most and player.drawn < examples:
            one = _find(player, examples - player.drawn, seed + len(found))
            if one is None:
                break
            found.append(one)
            if told is not None:
                told(one)
            player.known.add(one.contract)
        return Outcome(player.drawn, player.played, tuple(found))


@dataclass
class _Player:
    """Plays one scenario after the other on a target that stays open, on an event loop of its own."""

    opened: Opened
    rules: Sequence[Rule]
    tried: Tried | None
    examples: int
    known: set[str] = field(default_factory=set)
    drawn: int = 0
    played: int = 0

    def __enter__(self) -> "_Player":
        self._loop = asyncio.new_event_loop()
        self._manager = self.opened()
        try:
            self._target, self._network = self._loop.run_until_complete(self._manager.__aenter__())
            info = self._loop.run_until_complete(self._target.describe())
        except BaseException:
            self._loop.close()
            raise
        self.sessions = {name.removeprefix("session.") for name in info["capabilities"] if name.startswith("session.")}
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            cancel_all(self._loop)
            self._loop.run_until_complete(self._manager.__aexit__(None, None, None))
        finally:
            self._loop.close()

    def play(self, scenario: Scenario) -> Run:
        """The scenario under each of its sessions that the target has, judged by every rule."""
        if self.tried is not None:
            self.tried(self.played, self.examples)
        self.played += 1
        cases = [(scenario, session) for session in scenario.sessions if session in self.sessions]
        return self._loop.run_until_complete(
            verify(cases, self._target, self.rules, network=self._network, complete=False)
        )

    def broken(self, run: Run) -> str | None:
        """The first contract of a run that is violated and not known to be."""
        wrong = {result.contract for result in run.report.results if result.verdict in FAILING} - self.known
        levels = {rule.id: rule.level for rule in self.rules}
        return min(wrong, key=lambda id: (levels.get(id, 0), id), default=None)


class _Violated(Exception):
    """Raised inside Hypothesis. Each contract has a subclass of its own, so that shrinking never slips to another."""


def _find(player: _Player, examples: int, seed: int) -> Found | None:
    """One contract that some of `examples` scenarios violates, with the smallest."""
    import hypothesis
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis.errors import Flaky

    from miles_sim.scenarios.eventful import eventful

    kinds: dict[str, type[_Violated]] = {}
    latest: dict[str, Found] = {}
    last = [""]
    shrinking = [False]

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
        print_blob=False,
    )
    @given(eventful(linear=None if "v2" in player.sessions else True))
    def attempt(scenario: Scenario) -> None:
        player.drawn += not shrinking[0]
        run = player.play(scenario)
        contract = player.broken(run)
        if contract is not None:
            shrinking[0] = True
            last[0] = contract
            latest[contract] = Found(contract, scenario, run)
            kind = kinds.setdefault(contract, type("_Violated", (_Violated,), {}))
            raise kind(contract)

    with _quiet():
        try:
            attempt()
        except _Violated:
            return latest[last[0]]
        except Flaky:
            found = latest[last[0]]
            return Found(found.contract, found.scenario, found.run, steady=False)
    return None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the log: a random scenario's agents fail all the time, as they should."""
    import logging

    logger = logging.getLogger("miles_sim")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
