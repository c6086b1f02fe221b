"""Decides for each HTTP exchange of a play whether and how it is struck, and takes it down."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from miles_sim.faults.decide import Order, randomness, striking
from miles_sim.faults.journal import Entry, Journal
from miles_sim.faults.locate import Locate, Spot
from miles_sim.faults.made import names_of
from miles_sim.faults.place import Edge, Place
from miles_sim.faults.strike import Answer, Asked, Strike

THROUGH = Strike()
_HTTP = frozenset({"engine", "session", "driver"})


def _sketch(order: Order) -> Strike:
    """What it does somewhere, to see what it needs."""
    strike: Strike = order.kind.effect(order.params, Random(0))
    return strike


@dataclass(frozen=True)
class Meeting:
    """One exchange of the plan."""

    edge: Edge
    place: Place
    strike: Strike = THROUGH
    """By default it goes through as it is."""
    entry: Entry | None = None
    """Its line of the journal, if it is struck: who carries it out adds what was lost, and why it could not be done."""


class Injector:
    """One a play. `seed`: the scenario's. Requests of one place are told apart by their number alone."""

    def __init__(self, orders: Sequence[Order], *, seed: int, locate: Locate, journal: Journal) -> None:
        self._orders = tuple(orders)
        self._seed = seed
        self._locate = locate
        self._journal = journal
        self._attempts: Counter[Spot] = Counter()
        self._first: dict[tuple[Edge, int], Answer] = {}
        self._answered: list[tuple[Place, Sequence[Answer]]] = []
        self._heard: list[Answer] = []
        self._killer: Order | None = None
        strikes = [(order.kind.edge, _sketch(order)) for order in self._orders if order.kind.edge in _HTTP]
        self._read = {edge for edge, strike in strikes if strike.against is not None}
        if any(order.kind.edge == "model" for order in self._orders):
            self._read.add("engine")
        self.hangs_up = any(strike.leaves == "agent" for _, strike in strikes)
        """An agent may be made to leave while it waits."""
        self._minded = self._read | {order.kind.edge for order in self._orders}
        if self.hangs_up:
            self._minded.add("session")
        if any(strike.life for _, strike in strikes):
            self._minded.add("engine")
        if "agent" in self._minded:
            self._minded.add("driver")
        self.cancels = any(strike.leaves == "rollout" for _, strike in strikes)
        """The task of a rollout may be cancelled."""

    @property
    def orders(self) -> tuple[Order, ...]:
        return self._orders

    def minds(self, edge: Edge | None) -> bool:
        """Exchanges on that edge matter: they may be struck, or what is struck elsewhere depends on them.

        On an engine that may be dead, an agent that may leave while it waits, a driver's request after which an agent
        asks. `None` is an edge of no plan.
        """
        return edge in self._minded

    def reads(self, edge: Edge) -> bool:
        """An answer that nothing strikes matters all the same: for a later strike, or for what the model was to say."""
        return edge in self._read

    def meet(self, asked: Asked) -> Meeting | None:
        """What becomes of this exchange; None: it is none of the plan's."""
        spot = self._locate(asked)
        if spot is None:
            return None
        attempt = self._attempts[spot]
        self._attempts[spot] += 1
        place = Place(spot.rollout, spot.ordinal, spot.step, attempt)
        order = striking(self._orders, spot.edge, place, seed=self._seed)
        return Meeting(spot.edge, place) if order is None else self.struck(order, spot.edge, place)

    def struck(self, order: Order, edge: Edge, place: Place) -> Meeting:
        """The exchange at `place`, which `order` strikes."""
        strike: Strike = order.kind.effect(order.params, randomness(order, place, seed=self._seed))
        if any(life.operation == "die" for life in strike.life):
            self._killer = order
        return Meeting(edge, place, strike, self._journal.met(order, place))

    def answered(self, meeting: Meeting, answers: Sequence[Answer]) -> None:
        """What the other side answered, all copies of the request in order."""
        if meeting.edge == "engine":
            self._answered.append((meeting.place, answers))

    def dead(self, meeting: Meeting) -> None:
        """The engine, which a fault has ended, was not there to be asked: that fault strikes here, and no other."""
        if meeting.entry is not None and meeting.entry.order is self._killer:
            return
        if meeting.entry is not None:
            meeting.entry.cannot = "the engine is dead"
        if self._killer is not None:
            self._journal.met(self._killer, meeting.place)

    def handed_over(self, meeting: Meeting, answer: Answer, answers: Sequence[Answer]) -> None:
        """A whole answer, made of the last of `answers`, reached who asked.

        The first good one of a rollout is kept, as `Strike.against` needs it.
        """
        if answer.status == 200:
            self._first.setdefault((meeting.edge, meeting.place.rollout), answer)
            if meeting.edge == "engine":
                self._heard += answers[-1:]

    def made(self) -> dict[str, Place]:
        """Response id to where it was asked for, for generations of answers that were read (`reads`)."""
        return {name: place for place, answers in self._answered for name in names_of(answers)}

    def unheard(self) -> frozenset[str]:
        """Generations that the engine answered with, and of which nobody got an answer of status 200 to its end."""
        return frozenset(self.made()) - frozenset(names_of(self._heard))

    def earlier(self, meeting: Meeting) -> Answer | None:
        """The first good answer that this rollout was given on this edge."""
        return self._first.get((meeting.edge, meeting.place.rollout))
