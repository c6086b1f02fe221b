"""The faults of one play: what decides, carries out and takes down what a scenario's plan says."""

import httpx

from miles_sim.faults.decide import ordered
from miles_sim.faults.injector import Injector
from miles_sim.faults.journal import Journal
from miles_sim.faults.locate import Locator
from miles_sim.faults.strike import Life
from miles_sim.faults.transport import FaultTransport
from miles_sim.ledger import Ledger
from miles_sim.scenarios.compile import sampling
from miles_sim.scenarios.model import Scenario, SessionVersion
from miles_sim.tokenizer import ByteTokenizer


class Faults:
    """Those of `scenario` in one play."""

    def __init__(self, scenario: Scenario, session: SessionVersion) -> None:
        self._scenario = scenario
        self._journal = Journal()
        self._locator = Locator(
            scenario.plan,
            sampling(scenario, 0)["sampling_seed"],
            [
                number
                for number, source in enumerate(scenario.rollouts)
                if session != "v2" or source.rollout_id is not None or source.index is not None
            ],
            ByteTokenizer(scenario.engine.tokenizer).decode,
        )
        self._injector = Injector(
            ordered(scenario.faults), seed=scenario.seed, locate=self._locator, journal=self._journal
        )

    def told(self, rollout: int, base_url: str) -> None:
        """This rollout's agent was given a session of that URL."""
        self._locator.told(rollout, base_url)

    def between(self, inner: httpx.AsyncBaseTransport) -> httpx.AsyncBaseTransport:
        """`inner` with the faults of every edge that its requests pass."""
        return FaultTransport(inner, self._injector, self._live)

    def on(self, ledger: Ledger) -> Ledger:
        """With what fired, and what was due and could not."""
        if not self._scenario.faults:
            return ledger
        return ledger.model_copy(update={"fired": self._journal.fired(), "missed": self._journal.missed()})

    async def _live(self, life: Life) -> None:
        raise NotImplementedError(life.operation)
