"""One scenario of a campaign: drawn, played, judged, and told in a few numbers."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from types import TracebackType

from miles_sim.campaign.draw import drawn
from miles_sim.campaign.settings import CampaignSettings, chosen_kinds
from miles_sim.document import Document
from miles_sim.resources import CONTRACTS
from miles_sim.scenarios.model import Scenario, SessionVersion
from miles_sim.targets.base import Target
from miles_sim.targets.catalog import open_target
from miles_sim.transport import LocalNetwork
from miles_sim.verify.collector import Collector
from miles_sim.verify.farewell import cancel_all
from miles_sim.verify.judge import Judgement
from miles_sim.verify.pack import combine, load_pack, select
from miles_sim.verify.rule import Case, Rule
from miles_sim.verify.run import judged

NOTHING_FALSE = "faults/nothing-false"
FIRED = "faults/fired"
"""Of a plan that a person wrote, a fault that strikes nothing is an error; of a random one it is counted as idle."""


class Broken(Document):
    """A contract that a scenario violated."""

    contract: str
    message: str
    where: str
    places: int
    """How often in this scenario."""


class Unit(Document):
    """What came of one scenario. A few hundred bytes, whatever its size."""

    number: int
    session: str
    rollouts: int
    samples: int = 0
    fired: dict[str, int] = {}
    """Kind to how often it struck."""
    struck: dict[str, int] = {}
    """Kind to the rollouts that it struck."""
    idle: dict[str, int] = {}
    """Kind to the faults of it that found nothing to strike."""
    false_samples: int = 0
    """Samples that are untrue to the engine's record."""
    broken: tuple[Broken, ...] = ()


class UnitPlayer:
    """Plays scenarios of one campaign, one after the other, on a target that stays open.

    A context manager with an event loop of its own; any number of them give the same units.
    """

    def __init__(self, settings: CampaignSettings) -> None:
        self.settings = settings
        self.kinds = chosen_kinds(settings.faults)
        chosen = select(combine([load_pack(CONTRACTS), *map(load_pack, settings.packs)]), settings.contracts)
        self.rules: Sequence[Rule] = [rule for rule in chosen if rule.id != FIRED]
        self._collector = Collector()

    def __enter__(self) -> "UnitPlayer":
        self._loop = asyncio.new_event_loop()
        self._network = LocalNetwork()
        settings = self.settings
        try:
            self._target: Target = open_target(
                settings.target,
                python=settings.python,
                optimize=settings.optimize,
                checkout=settings.checkout,
                network=self._network,
            )
            info = self._loop.run_until_complete(self._target.describe())
        except BaseException:
            self._loop.close()
            raise
        here = settings.target == "reference" and settings.python is None and not settings.optimize
        self._shared = self._network if here else None
        self._sessions = [name.removeprefix("session.") for name in info["capabilities"] if name.startswith("session.")]
        self._collector.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            cancel_all(self._loop)
            self._loop.run_until_complete(self._target.close())
            self._loop.run_until_complete(self._network.aclose())
        finally:
            self._loop.close()
            self._collector.__exit__(None, None, None)

    def scenario(self, number: int) -> Scenario:
        """The scenario of that number."""
        settings = self.settings
        return drawn(settings.seed, number, kinds=self.kinds, rollouts=settings.rollouts_of(number))

    def play(self, number: int) -> Unit:
        """What comes of scenario `number`."""
        try:
            return self._played(number)
        finally:
            self._collector.played()

    def _played(self, number: int) -> Unit:
        scenario = self.scenario(number)
        session = self._session(scenario)
        case, judgements = self.judged(scenario, session)
        broken = tuple(_broken(judgement) for judgement in judgements if judgement.violations)
        unit = Unit(number=number, session=session, rollouts=len(scenario.rollouts), broken=broken)
        return unit if case is None else unit.model_copy(update=_seen(case, judgements))

    def judged(self, scenario: Scenario, session: SessionVersion) -> tuple[Case | None, list[Judgement]]:
        """The case, None where the play did not end, and what each rule says of it."""
        work = judged(scenario, session, self._target, self.rules, network=self._shared)
        return self._loop.run_until_complete(work)

    def _session(self, scenario: Scenario) -> SessionVersion:
        """One that both sides have, by turns; the scenario's first one where there is none."""
        both = [session for session in scenario.sessions if session in self._sessions] or list(scenario.sessions)
        return both[scenario.seed % len(both)]


def _broken(judgement: Judgement) -> Broken:
    first = judgement.violations[0]
    return Broken(
        contract=judgement.rule.id, message=first.message, where=str(first.place), places=len(judgement.violations)
    )


def _seen(case: Case, judgements: Sequence[Judgement]) -> dict[str, object]:
    fired = case.ledger.fired
    struck = {(fire.kind, fire.rollout) for fire in fired}
    found = {fire.fault for fire in fired}
    idle = Counter(fault.kind for place, fault in enumerate(case.scenario.faults) if place not in found)
    false = {
        (violation.place.rollout, violation.place.sample)
        for judgement in judgements
        if judgement.rule.id == NOTHING_FALSE
        for violation in judgement.violations
    }
    return {
        "samples": sum(len(rollout.samples) for rollout in case.rollouts),
        "fired": dict(sorted(Counter(fire.kind for fire in fired).items())),
        "struck": dict(sorted(Counter(kind for kind, _ in struck).items())),
        "idle": dict(sorted(idle.items())),
        "false_samples": len(false),
    }
