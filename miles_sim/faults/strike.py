"""What a fault does to one HTTP exchange: plain data, carried out in this process or over a socket alike."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal


class CannotStrike(ValueError):
    """What is there has nothing of the kind to spoil; the message is the reason. It goes on as it is."""


@dataclass(frozen=True)
class Answer:
    """A response, whole."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)
    """As they are sent, but for the length and the connection's own, which who carries it out sets."""


@dataclass(frozen=True)
class Asked:
    """A request, whole."""

    method: str
    path: str
    """With its query."""
    headers: tuple[tuple[str, str], ...]
    body: bytes


def unchanged(answer: Answer) -> Answer:
    """The default transformation."""
    return answer


@dataclass(frozen=True)
class Strike:
    """How one exchange goes.

    In this order: `ask` may change the request; `deliveries` copies of it reach the other side, one after the other,
    and the last one's answer counts (`instead` stands in where none is delivered); `reply` may change that answer;
    then it is handed over as `ending` says.
    """

    ask: Callable[[Asked], Asked] = field(default=lambda asked: asked)
    deliveries: int = 1
    """0: the other side never hears of it."""
    at_once: bool = False
    """Deliver all copies at the same time, not one after the other."""
    instead: Answer | Callable[[Asked], Answer] | None = None
    """The answer where nothing is delivered; None with `refused`, `reset` or `stalled`."""
    reply: Callable[[Answer], Answer] = unchanged
    """`CannotStrike` where the answer is none that it can change."""
    against: Callable[[Answer, Answer], Answer] | None = None
    """In place of `reply`, for what needs an earlier answer: (the first one that was handed over whole with status 200
    for this rollout, this one). `CannotStrike` where there is none yet."""
    ending: Literal["whole", "refused", "reset", "stalled", "closed"] = "whole"
    """`refused`: no connection at all. `reset`: the connection breaks. `stalled`: nothing more comes, ever; who waits
    with a read timeout gets it at once in this process, and after that time over a socket. `closed`: the
    connection is closed in order, before all that was announced has been sent."""
    headers: bool = False
    """Status line and headers are handed over before the ending; with `whole` they always are."""
    body_bytes: int | float | None = None
    """Bytes of the body handed over before the ending, if `headers` are; a float: that share of it, rounded down; None:
    none, or all with `whole`."""
    chunk_bytes: int | None = None
    """The body comes in pieces of so many bytes; None: as it is."""
    life: tuple["Life", ...] = ()
    """What befalls the other side, in order."""
    leaves: Literal["agent", "rollout"] | None = None
    """Who stops waiting at that place, in lieu of an ending: the agent hangs up on its request, which this exchange is
    or serves, or the task that runs the whole rollout is cancelled. Nobody is left to be answered."""

    def arriving(self, length: int) -> int:
        """How many bytes of a body of that length are handed over."""
        if self.ending == "whole":
            return length
        share = self.body_bytes or 0
        return int(share * length) if isinstance(share, float) else share

    def stand_in(self, asked: Asked) -> Answer | None:
        """The answer to a request that is not delivered."""
        return self.instead(asked) if callable(self.instead) else self.instead

    def altered(self, answer: Answer, earlier: Answer | None) -> Answer:
        """The answer as it is handed over; `earlier`: see `against`."""
        if self.against is None:
            return self.reply(answer)
        if earlier is None:
            raise CannotStrike("no reply was given before this one")
        return self.against(earlier, answer)


@dataclass(frozen=True)
class Life:
    """Something that befalls the engine itself, through its own control endpoints."""

    operation: Literal["flush_cache", "abort_all", "update_weights", "restart", "die", "revive", "forget"]
    """`die`: from then on it refuses every connection. `forget`: the session server loses the session that the request
    belongs to, as by a restart."""
    moment: Literal["before", "after"] = "before"
    """Before the request is delivered, or after it is answered."""
    weight_version: str | None = None
