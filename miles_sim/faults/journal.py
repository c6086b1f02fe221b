"""What became of a fault plan: what fired, what could not, and the explicit plan that does the same again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from miles_sim.faults.decide import Order
from miles_sim.faults.place import Edge, Place
from miles_sim.faults.plan import Fault, When, Where
from miles_sim.ledger import Fired, Missed

_EDGES: tuple[Edge, ...] = ("agent", "session", "engine", "model", "driver")


@dataclass
class Entry:
    """One fault that met a place."""

    order: Order
    place: Place
    lost: list[str] = field(default_factory=list)
    cannot: str | None = None
    """Why it could not strike there."""


@dataclass
class Journal:
    """Takes down what happens in any order, and tells it in the order of places."""

    entries: list[Entry] = field(default_factory=list)

    def met(self, order: Order, place: Place) -> Entry:
        entry = Entry(order, place)
        self.entries.append(entry)
        return entry

    def fired(self) -> tuple[Fired, ...]:
        return tuple(
            Fired(
                fault=entry.order.number,
                kind=entry.order.kind.name,
                rollout=entry.place.rollout,
                step=entry.place.step,
                attempt=entry.place.attempt,
                lost=tuple(sorted(set(entry.lost))),
            )
            for entry in self._sorted()
            if entry.cannot is None
        )

    def missed(self) -> tuple[Missed, ...]:
        return tuple(
            Missed(
                fault=entry.order.number,
                kind=entry.order.kind.name,
                rollout=entry.place.rollout,
                step=entry.place.step,
                attempt=entry.place.attempt,
                reason=entry.cannot,
            )
            for entry in self._sorted()
            if entry.cannot is not None
        )

    def _sorted(self) -> list[Entry]:
        return sorted(
            self.entries,
            key=lambda e: (e.place.rollout, _EDGES.index(e.order.kind.edge), e.place, e.order.number),
        )


def explicit(faults: Sequence[Fault], fired: Iterable[Fired]) -> tuple[Fault, ...]:
    """The plan that strikes where this one struck, a fault a firing: nothing in it depends on a draw."""
    return tuple(
        Fault(
            kind=each.kind,
            params=faults[each.fault].params,
            where=Where(rollout=each.rollout, step=each.step, attempt=each.attempt),
            when=When(),
        )
        for each in fired
    )
