"""Faults of the session layer: what befalls the session server between the driver's and the agent's requests."""

import json
from random import Random

from pydantic import Field

from miles_sim.document import Document
from miles_sim.faults.kind import NoParams, Verdict, kind
from miles_sim.faults.strike import Answer, Life, Strike

OPERATIONS = ("open", "collect", "delete")
STATUSES = {404: "no such session", 422: "a record is no reply", 500: "Internal Server Error"}


class Pieces(Document):
    """How slowly."""

    chunk_bytes: int = Field(default=7, ge=1)
    """Bytes that come at a time."""


_OF_STATUS: dict[str, tuple[Verdict, str]] = {
    "open": ("reject", "without a session nothing can be recorded: the rollout ends before its agent runs"),
    "collect": ("reject", "the server has no samples to give, and says why; none is made up"),
    "delete": ("tolerate", "the samples are there already; what becomes of the session changes none of them"),
}


def _status(operation: str, status: int) -> None:
    verdict, reason = _OF_STATUS[operation]
    answer = Answer(status, json.dumps({"error": STATUSES[status]}).encode())

    def effect(params: NoParams, random: Random) -> Strike:
        if operation == "delete":  # it is deleted, so that none is left behind
            return Strike(reply=lambda _: answer)
        return Strike(deliveries=0, instead=answer)

    effect.__doc__ = f"The {operation} request is answered with status {status}."
    kind(f"session-{operation}-{status}", layer="session", edge="driver", at=operation, verdict=verdict, reason=reason)(
        effect
    )


for _operation in OPERATIONS:
    for _code in STATUSES:
        _status(_operation, _code)


@kind(
    "session-open-refused",
    layer="session",
    edge="driver",
    at="open",
    verdict="reject",
    reason="without a session nothing can be recorded: the rollout ends before its agent runs",
)
def _open_refused(params: NoParams, random: Random) -> Strike:
    """The session server is not there when the driver opens a session."""
    return Strike(deliveries=0, ending="refused")


@kind(
    "session-open-lost",
    layer="session",
    edge="driver",
    at="open",
    verdict="reject",
    reason="the session is there and nobody has its id: it can only expire by itself",
    counters=("sessions_open",),
)
def _open_lost(params: NoParams, random: Random) -> Strike:
    """The answer to the open request is lost."""
    return Strike(ending="reset")


_LOST = "the samples cannot be had: one aborted copy of the input stands in their place"


@kind("session-collect-refused", layer="session", edge="driver", at="collect", verdict="degrade", reason=_LOST)
def _collect_refused(params: NoParams, random: Random) -> Strike:
    """The session server is not there when the driver collects."""
    return Strike(deliveries=0, ending="refused")


@kind("session-collect-lost", layer="session", edge="driver", at="collect", verdict="degrade", reason=_LOST)
def _collect_lost(params: NoParams, random: Random) -> Strike:
    """The connection breaks before the answer to the collect request."""
    return Strike(ending="reset")


@kind("session-collect-cut", layer="session", edge="driver", at="collect", verdict="degrade", reason=_LOST)
def _collect_cut(params: NoParams, random: Random) -> Strike:
    """The connection is closed within the answer to the collect request."""
    return Strike(ending="closed", headers=True, body_bytes=64)


@kind("session-collect-stalled", layer="session", edge="driver", at="collect", verdict="degrade", reason=_LOST)
def _collect_stalled(params: NoParams, random: Random) -> Strike:
    """The collect request is never answered."""
    return Strike(ending="stalled")


_LATE = "slow is not wrong"


@kind(
    "session-collect-slow",
    layer="session",
    edge="driver",
    at="collect",
    verdict="tolerate",
    reason=_LATE,
    params=Pieces,
)
def _collect_slow(params: Pieces, random: Random) -> Strike:
    """The answer to the collect request comes in small pieces."""
    return Strike(chunk_bytes=params.chunk_bytes)


@kind(
    "session-collect-twice",
    layer="session",
    edge="driver",
    at="collect",
    verdict="tolerate",
    reason="to collect changes nothing: the second answer is the first",
    copies=2,
)
def _collect_twice(params: NoParams, random: Random) -> Strike:
    """A router delivers the collect request twice."""
    return Strike(deliveries=2)


_OVER = "the samples are there already; a session that cannot be deleted is told and left to expire"


@kind(
    "session-delete-refused",
    layer="session",
    edge="driver",
    at="delete",
    verdict="tolerate",
    reason=_OVER,
    counters=("sessions_open",),
)
def _delete_refused(params: NoParams, random: Random) -> Strike:
    """The session server is not there when the driver deletes the session."""
    return Strike(deliveries=0, ending="refused")


@kind("session-delete-lost", layer="session", edge="driver", at="delete", verdict="tolerate", reason=_OVER)
def _delete_lost(params: NoParams, random: Random) -> Strike:
    """The answer to the delete request is lost."""
    return Strike(ending="reset")


@kind("session-delete-stalled", layer="session", edge="driver", at="delete", verdict="tolerate", reason=_OVER)
def _delete_stalled(params: NoParams, random: Random) -> Strike:
    """The delete request is never answered."""
    return Strike(ending="stalled")


@kind(
    "session-delete-twice",
    layer="session",
    edge="driver",
    at="delete",
    verdict="tolerate",
    reason="what is gone cannot be deleted, and nothing else is",
    copies=2,
)
def _delete_twice(params: NoParams, random: Random) -> Strike:
    """A router delivers the delete request twice."""
    return Strike(deliveries=2)


@kind(
    "session-forgotten",
    layer="session",
    edge="session",
    verdict="reject",
    reason="what the server recorded is lost with it: the agent's and the driver's requests are refused by name",
    takes_all=True,
)
def _forgotten(params: NoParams, random: Random) -> Strike:
    """The session server is restarted, and knows nothing of the session when the agent asks on."""
    return Strike(life=(Life("forget"),))


def _chat_status(status: int) -> None:
    answer = Answer(status, json.dumps({"error": STATUSES[status]}).encode())

    def effect(params: NoParams, random: Random) -> Strike:
        return Strike(deliveries=0, instead=answer)

    effect.__doc__ = f"The agent's request is answered with status {status} before it comes to the session server."
    kind(
        f"session-chat-{status}",
        layer="session",
        edge="session",
        verdict="reject",
        reason="nothing was generated for it; what the session holds is kept",
    )(effect)


for _code in STATUSES:
    _chat_status(_code)


@kind(
    "session-chat-slow",
    layer="session",
    edge="session",
    verdict="tolerate",
    reason=_LATE,
    params=Pieces,
)
def _chat_slow(params: Pieces, random: Random) -> Strike:
    """The reply to the agent comes in small pieces."""
    return Strike(chunk_bytes=params.chunk_bytes)


@kind(
    "session-chat-cut",
    layer="session",
    edge="session",
    verdict="reject",
    reason="the agent never read the whole of the reply, and goes on as if there were none",
)
def _chat_cut(params: NoParams, random: Random) -> Strike:
    """The connection is closed within the reply to the agent."""
    return Strike(ending="closed", headers=True, body_bytes=16)


@kind(
    "session-chat-twice",
    layer="session",
    edge="session",
    verdict="tolerate",
    reason="asked twice is asked again: the reply that went to the agent is the later one, and the elder is dropped",
    copies=2,
)
def _chat_twice(params: NoParams, random: Random) -> Strike:
    """A router delivers the agent's request twice, and hands on the second answer."""
    return Strike(deliveries=2)
