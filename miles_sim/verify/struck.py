"""The faults of one play: what decides, carries out and takes down what a scenario's plan says."""

from collections.abc import Callable, Container, Mapping, MutableMapping
from functools import partial

import httpx

from miles_sim.agent.plan import walk
from miles_sim.agent.steps import Ask
from miles_sim.faults.agent import RETURN, AgentFaults, Struck
from miles_sim.faults.decide import Order, ordered, randomness, striking
from miles_sim.faults.injector import Injector
from miles_sim.faults.journal import Journal
from miles_sim.faults.lives import Lives
from miles_sim.faults.locate import Locator
from miles_sim.faults.place import Edge, Place
from miles_sim.faults.transport import FaultTransport, Waiting
from miles_sim.ledger import Ledger
from miles_sim.scenarios.compile import sampling
from miles_sim.scenarios.model import Scenario, SessionVersion
from miles_sim.scenarios.spoiled import spoiled_replies
from miles_sim.tokenizer import built_in

Cancellers = Mapping[int, Callable[[], object]]
"""Rollout to what cancels its task."""


def needed(scenario: Scenario, session: SessionVersion) -> list[str]:
    """Capabilities of a target without which the scenario cannot be played."""
    needs = [f"session.{session}"]
    injector = Injector(ordered(scenario.faults), seed=scenario.seed, locate=lambda asked: None, journal=Journal())
    if any(order.kind.edge == "driver" for order in injector.orders):
        needs.append("faults.driver")
    return [*needs, "faults.cancel"] if injector.cancels else needs


class Faults:
    """Those of `scenario` in one play."""

    def __init__(self, scenario: Scenario, session: SessionVersion, cancellers: Cancellers | None = None) -> None:
        self._scenario = scenario
        self._session = session
        self._orders = ordered(scenario.faults)
        self._cancellers: Cancellers = {} if cancellers is None else cancellers
        self._journal = Journal()
        self._locator = self._located()
        self._injector = Injector(self._orders, seed=scenario.seed, locate=self._locator, journal=self._journal)
        self._lives: Lives | None = None
        self._agents: Waiting = {}
        self._hooks: MutableMapping[int, AgentFaults] = {}
        self._steps = [*(key for key, step in walk(scenario.plan.steps) if isinstance(step, Ask)), RETURN]

    def told(self, rollout: int, base_url: str) -> None:
        """This rollout's agent was given a session of that URL."""
        self._locator.told(rollout, base_url)

    def hook(self, rollout: int) -> AgentFaults | None:
        """What makes this rollout's agent go wrong; None where no fault is on its edge."""
        if not any(order.kind.edge == "agent" for order in self._orders):
            return None
        return self._hooks.setdefault(rollout, AgentFaults(partial(self._due, rollout), partial(self._met, rollout)))

    def strikes(self, edge: Edge) -> bool:
        """Some fault is on that edge."""
        return any(order.kind.edge == edge for order in self._orders)

    def between(
        self, inner: httpx.AsyncBaseTransport, engine_url: str, *, edges: Container[Edge] | None = None
    ) -> httpx.AsyncBaseTransport:
        """`inner` with the faults of `edges`, None for every edge that its requests pass.

        `engine_url`: of the engine itself, no fault between.
        """
        self._lives = self._lives or Lives(inner, engine_url)
        return FaultTransport(inner, self._injector, self._lives, self, edges=edges, agents=self._agents)

    def cancel(self, rollout: int) -> bool:
        """As `faults.transport.Others`."""
        canceller = self._cancellers.get(rollout)
        if canceller is None:
            return False
        canceller()
        return True

    async def after(self, rollout: int, moment: str) -> None:
        """As `faults.transport.Others`."""
        if rollout in self._hooks:
            await self._hooks[rollout].after(moment)

    def unheard(self) -> frozenset[str]:
        """Generations whose answer came to nobody whole."""
        return self._injector.unheard()

    def on(self, ledger: Ledger) -> Ledger:
        """With what fired, and what was due and could not."""
        if not self._scenario.faults:
            return ledger
        self._note_replies(ledger)
        return ledger.model_copy(update={"fired": self._journal.fired(), "missed": self._journal.missed()})

    def _located(self) -> Locator:
        named = self._session != "v2"
        openers = [n for n, i in enumerate(self._scenario.rollouts) if named or (i.rollout_id, i.index) != (None, None)]
        decode = built_in(self._scenario.engine.tokenizer).decode
        return Locator(self._scenario.plan, sampling(self._scenario, 0)["sampling_seed"], openers, decode)

    def _due(self, rollout: int, step: str) -> list[Struck]:
        place = self._agents_place(rollout, step)
        order = striking(self._orders, "agent", place, seed=self._scenario.seed)
        if order is None:
            return []
        return [Struck(order.number, order.kind, order.params, randomness(order, place, seed=self._scenario.seed))]

    def _met(self, rollout: int, struck: Struck, step: str, cannot: str | None) -> None:
        order: Order = self._orders[struck.fault]
        self._journal.met(order, self._agents_place(rollout, step)).cannot = cannot

    def _agents_place(self, rollout: int, step: str) -> Place:
        return Place(rollout, self._steps.index(step), step, 0)

    def _note_replies(self, ledger: Ledger) -> None:
        """What the model was made to say shows in what the engine generated."""
        spoiled = {spot.place: spot for spot in spoiled_replies(self._scenario)}
        made = self._injector.made() if spoiled else {}
        for generation in ledger.generations if spoiled else ():
            asked = made.get(generation.id)
            if asked is not None:
                place = Place(asked.rollout, asked.ordinal, asked.step, generation.attempt)
                if place in spoiled:
                    self._journal.met(spoiled[place].order, place).cannot = spoiled[place].cannot
