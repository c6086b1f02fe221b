"""What may come between an agent and its plan: another request than planned, an error, an early end.

The player asks its hook before each request and at the end; who writes the hook decides, the player carries out.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import orjson

from miles_sim.agent.conversation import Message

RETURN = "return"
"""In place of a step's key: the end of the plan."""
Body = dict[str, Any]
Raised = Callable[[], BaseException]


@dataclass(frozen=True)
class Doing:
    """What the agent is about to do."""

    step: str
    """Key of the step, or `RETURN`."""
    messages: Sequence[Message] = ()
    """Of the request, history first."""
    own: int = 0
    """How many of them, at the end, this step adds; 0 where it asks again what was asked before."""
    options: Mapping[str, Any] | None = None
    """All other fields of the request. None at the end."""
    returned: Any = None
    """At the end, what the agent returns."""


@dataclass(frozen=True)
class Deed:
    """What it does instead. As it stands, what the plan says."""

    messages: Sequence[Message] | None = None
    """The conversation from here on, the step's own messages among them."""
    omitted: frozenset[str] = frozenset()
    """Other fields that this conversation's requests no longer carry."""
    earlier: Sequence[Callable[[Body], Body]] = ()
    """Further requests, made of the planned one's body: one after the other before it. Nobody goes on from their
    replies; the journal has them under `{step}~{number}`."""
    beside: Sequence[Callable[[Body], Body]] = ()
    """The same, all at the same time as the planned one. Where a body is equal to it, the two requests are one and the
    same: the reply with the smaller id counts as the step's, whichever came first."""
    before: Raised | None = None
    """Raised in place of the request."""
    after: Raised | None = None
    """Raised when the request was answered."""
    later: Literal["collect", "delete"] | None = None
    """The agent asks once more when it should be over: once its session was collected, or deleted."""
    returns: Callable[[Any], Any] | None = None
    """At the end: what is returned in place of what the plan says."""


PLANNED = Deed()


class AgentGone(BaseException):
    """The agent is done before its plan is: it returns what the plan says, and asks no more."""


class Hook(Protocol):
    """One rollout's."""

    def does(self, doing: Doing) -> Deed:
        """What the agent does instead."""
        ...

    def later(self, moment: str, ask: Callable[[], Awaitable[None]]) -> None:
        """Keep `ask` until that moment."""
        ...


def changed(body: bytes, change: Callable[[Body], Body]) -> bytes:
    """A request's body with a change made to what it says."""
    return orjson.dumps(change(orjson.loads(body)))
