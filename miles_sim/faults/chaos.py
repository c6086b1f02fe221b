"""Faults in front of any engine or router: where a request stands is told by what it asks alone."""

import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

import httpx
import orjson

from miles_sim.document import Document
from miles_sim.faults.catalogue import UnknownFaultError, kinds
from miles_sim.faults.decide import Order, ParamsError, ordered, striking
from miles_sim.faults.injector import Injector, Meeting
from miles_sim.faults.journal import Entry, Journal
from miles_sim.faults.lives import Lives
from miles_sim.faults.place import Edge, Place
from miles_sim.faults.plan import Fault
from miles_sim.faults.strike import Answer, Asked
from miles_sim.faults.transport import FaultTransport
from miles_sim.yaml_file import YamlFile

LAYERS = ("transport", "http", "payload")
"""What can be done to an engine from outside."""
ROUTES = ("/v1/chat/completions", "/v1/completions", "/generate")
_REMEMBERED = 100_000
"""Contents whose attempts are counted; the one asked least recently is forgotten first."""

Pick = Callable[[Place], Order | None]
"""The fault, if any, that strikes there; `step` is the digest of what is asked."""


class ChaosPlanError(ValueError):
    """Faults that cannot be put in front of an engine."""


def orders_of(globs: Sequence[str]) -> tuple[Order, ...]:
    """The kinds of `LAYERS` that any of the globs names; `ChaosPlanError` for one that names none."""
    known = [name for name, kind in kinds().items() if kind.layer in LAYERS]
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in known):
            raise ChaosPlanError(f"faults: {glob!r} names none of the {len(known)} kinds of {', '.join(LAYERS)}")
    return ordered(Fault(kind=name) for name in known if any(fnmatchcase(name, glob) for glob in globs))


def planned(faults: Sequence[Fault]) -> tuple[Order, ...]:
    """A plan's faults; `ChaosPlanError` for one that cannot be done here. `where.step` is a glob over digests."""
    try:
        orders = ordered(faults)
    except (UnknownFaultError, ParamsError) as error:
        raise ChaosPlanError(f"faults: {error}") from None
    for order in orders:
        if order.kind.layer not in LAYERS:
            raise ChaosPlanError(
                f"faults[{order.number}]: kind {order.kind.name!r} is of the layer {order.kind.layer!r}; "
                f"in front of an engine there are {', '.join(LAYERS)}"
            )
        if order.fault.where.rollout is not None:
            raise ChaosPlanError(f"faults[{order.number}]: where.rollout: an engine knows no rollouts; use where.step")
    return orders


class _Plan(Document):
    """A plan's file. Other keys, as of a scenario, are refused."""

    faults: tuple[Fault, ...]


def read_plan(file: Path) -> tuple[Fault, ...]:
    """The faults of a YAML file: `faults: [{kind, params, where, when}, …]`. DocumentError by line and field."""
    return YamlFile(file).read(_Plan).faults


def drawn(orders: Sequence[Order], *, probability: float, seed: int) -> Pick:
    """Each attempt is struck with that probability, by any of the orders alike."""

    def pick(place: Place) -> Order | None:
        random = Random(f"{seed}:{place.step}:{place.attempt}")
        return random.choice(orders) if random.random() < probability else None

    return pick


def by_plan(orders: Sequence[Order], *, seed: int) -> Pick:
    """As the plan's `where` and `when` say; `when.every` counts by digest, which is as good as a draw."""
    return lambda place: striking(orders, "engine", place, seed=seed)


def digest(asked: Asked) -> str:
    """What is asked, in 16 hex digits: route and body, whatever the order of its fields where it can be written."""
    try:
        body = orjson.dumps(orjson.loads(asked.body), option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):  # what nests deep can be read, not written
        body = asked.body
    return blake2b(asked.path.encode() + b"\n" + body, digest_size=8).hexdigest()


@dataclass
class Tally:
    """What became of the requests so far."""

    requests: int = 0
    """To the generating routes; all others go through and are not counted."""
    fired: Counter[str] = field(default_factory=Counter)
    could_not: Counter[str] = field(default_factory=Counter)

    def document(self) -> dict[str, Any]:
        """`{"requests", "fired", "could_not", "by_kind": [{"kind", "fired", "could_not"}]}`, kinds by name."""
        names = sorted({*self.fired, *self.could_not})
        return {
            "requests": self.requests,
            "fired": self.fired.total(),
            "could_not": self.could_not.total(),
            "by_kind": [{"kind": n, "fired": self.fired[n], "could_not": self.could_not[n]} for n in names],
        }


class ChaosInjector(Injector):
    """As its base, for a server that runs on: what it remembers is bounded, and what is not struck passes unread."""

    def __init__(self, pick: Pick, tally: Tally, *, seed: int) -> None:
        super().__init__((), seed=seed, locate=lambda asked: None, journal=_Unkept())
        self._pick = pick
        self._tally = tally
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._earlier: Answer | None = None

    def minds(self, edge: Edge | None) -> bool:
        """`meet` decides: an upstream's own path may stand before a route that a plan would know."""
        return True

    def meet(self, asked: Asked) -> Meeting | None:
        path = asked.path.partition("?")[0]
        if asked.method != "POST" or not path.endswith(ROUTES):
            return None
        self._tally.requests += 1
        step = digest(asked)
        place = Place(0, int(step, 16), step, self._count(step))
        order = self._pick(place)
        return None if order is None else self.struck(order, "engine", place)

    def answered(self, meeting: Meeting, answers: Sequence[Answer]) -> None:
        """Whose generations are whose is not told apart here."""

    def handed_over(self, meeting: Meeting, answer: Answer, answers: Sequence[Answer]) -> None:
        if answer.status == 200 and self._earlier is None:
            self._earlier = answer

    def earlier(self, meeting: Meeting) -> Answer | None:
        return self._earlier

    def _count(self, step: str) -> int:
        attempt = self._counts.pop(step, 0)
        self._counts[step] = attempt + 1
        if len(self._counts) > _REMEMBERED:
            self._counts.popitem(last=False)
        return attempt


class _Unkept(Journal):
    """Entries are told one by one, not kept."""

    def met(self, order: Order, place: Place) -> Entry:
        return Entry(order, place)


class ChaosTransport(FaultTransport):
    """As its base; each strike is a line of the journal when it is over.

    A line: `{"kind", "params", "path", "step", "attempt", "fired", "reason", "lost"}`; `step` is the digest of what
    was asked, `reason` why it could not be, `lost` the ids of generations of which no true answer was given.
    """

    def __init__(
        self,
        inner: httpx.AsyncBaseTransport,
        injector: ChaosInjector,
        *,
        upstream: str,
        tally: Tally,
        write: Callable[[str], object],
    ) -> None:
        super().__init__(inner, injector, Lives(inner, upstream), _Nobody())
        self._tally = tally
        self._write = write

    async def _exchange(self, meeting: Meeting, asked: Asked, request: httpx.Request) -> httpx.Response:
        try:
            return await super()._exchange(meeting, asked, request)
        finally:
            self._tell(meeting, asked)

    def _tell(self, meeting: Meeting, asked: Asked) -> None:
        entry = meeting.entry
        if entry is None:
            return
        name = entry.order.kind.name
        (self._tally.fired if entry.cannot is None else self._tally.could_not)[name] += 1
        line = {
            "kind": name,
            "params": entry.order.fault.params,
            "path": asked.path,
            "step": meeting.place.step,
            "attempt": meeting.place.attempt,
            "fired": entry.cannot is None,
            "reason": entry.cannot,
            "lost": sorted(set(entry.lost)),
        }
        self._write(json.dumps(line) + "\n")


class _Nobody:
    """Nobody takes part but who asks."""

    def cancel(self, rollout: int) -> bool:
        return False

    async def after(self, rollout: int, moment: str) -> None:
        return None
