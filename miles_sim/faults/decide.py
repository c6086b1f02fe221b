"""Whether a fault strikes at a place: a pure function of the scenario's seed, the fault and the place."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import blake2b
from random import Random
from typing import Any

from pydantic import ValidationError

from miles_sim.document import Document, explain
from miles_sim.faults.catalogue import kind_named
from miles_sim.faults.kind import Kind
from miles_sim.faults.place import Edge, Place
from miles_sim.faults.plan import Fault


class ParamsError(ValueError):
    """Parameters that the kind does not take."""


@dataclass(frozen=True)
class Order:
    """A fault of a plan with its kind and its parameters, both known to be right."""

    number: int
    """Position in the plan."""
    fault: Fault
    kind: Kind
    params: Document

    @cached_property
    def certain(self) -> bool:
        """Strikes wherever it fits, without a draw."""
        return self.fault.when.probability is None

    def fits(self, place: Place) -> bool:
        """Kind, `where` and `when` allow this place; a draw may still be against it."""
        where, when = self.fault.where, self.fault.when
        return (
            self.kind.fits(place.step)
            and where.rollout in (None, place.rollout)
            and (where.step is None or fnmatchcase(place.step, where.step))
            and where.attempt in (None, place.attempt)
            and (when.first is None or place.attempt < when.first)
            and (when.every is None or (place.ordinal + 1) % when.every == 0)
        )


def ordered(faults: Iterable[Fault]) -> tuple[Order, ...]:
    """The plan's faults in its order. `UnknownFaultError` or `ParamsError` for the first that is not right."""
    return tuple(_order(number, fault) for number, fault in enumerate(faults))


def _order(number: int, fault: Fault) -> Order:
    kind = kind_named(fault.kind)
    try:
        params = kind.params.model_validate(fault.params)
    except ValidationError as error:
        raise ParamsError(explain(error, name=f"kind {kind.name!r}: params", data=fault.params)) from None
    return Order(number, fault, kind, params)


def striking(orders: Sequence[Order], edge: Edge, place: Place, *, seed: int) -> Order | None:
    """The first fault on this edge that strikes here: one place is struck once."""
    return next((order for order in orders if order.kind.edge == edge and strikes(order, place, seed=seed)), None)


def strikes(order: Order, place: Place, *, seed: int) -> bool:
    """Whether the order's fault fires at this place: a pure function of both and the seed."""
    probability = order.fault.when.probability
    if not order.fits(place):
        return False
    return probability is None or _random(seed, "strikes", order.number, place).random() < probability


def randomness(order: Order, place: Place, *, seed: int) -> Random:
    """What the kind may draw from: the same wherever in a plan the fault stands, so that an exported plan replays."""
    return _random(seed, "effect", order.kind.name, place)


def _random(*parts: Any) -> Random:
    return Random(blake2b(":".join(map(str, parts)).encode(), digest_size=16).digest())
