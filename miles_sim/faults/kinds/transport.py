"""Faults of the transport layer: the connection itself, before, within and behind an answer."""

from collections.abc import Callable
from functools import partial
from random import Random

from pydantic import Field

from miles_sim.document import Document
from miles_sim.faults.kind import kind
from miles_sim.faults.strike import Answer, CannotStrike, Strike

_kind = partial(kind, layer="transport", edge="engine", scenario="fault-transport")
_LOST = "no whole answer came, so there is nothing to train on; who asked is told so and may ask again"
_ONCE = "what was answered is kept once; a generation that nobody was answered with is trained on by nobody"
_ALL_THERE = "the bytes arrive, all of them and in order: how they were cut on the way changes nothing"


class Bytes(Document):
    """A place in the body."""

    bytes: int = Field(default=20, ge=0)
    """Bytes of the body that arrive."""


class Fraction(Document):
    """A place in the body, by its length."""

    fraction: float = Field(default=0.5, ge=0, lt=1)
    """Share of the body that arrives."""


class Chunks(Document):
    """A place in a body that comes in pieces."""

    chunk_bytes: int = Field(default=64, ge=1)
    chunks: int = Field(default=1, ge=0)
    """Pieces that arrive."""


class Trickle(Document):
    """Size of the pieces."""

    chunk_bytes: int = Field(default=1, ge=1)


class Copies(Document):
    """How often the request arrives."""

    copies: int = Field(default=2, ge=2, le=8)


@_kind("transport-refused", verdict="reject", reason=_LOST)
def refused(params: Document, random: Random) -> Strike:
    """Nothing listens: the connection is refused."""
    return Strike(deliveries=0, ending="refused")


@_kind("transport-reset-before", verdict="reject", reason=_LOST)
def reset_before(params: Document, random: Random) -> Strike:
    """The connection is reset before the engine has heard of the request."""
    return Strike(deliveries=0, ending="reset")


@_kind("transport-reset-delivered", verdict="reject", reason=_LOST)
def reset_delivered(params: Document, random: Random) -> Strike:
    """The engine generates, and the connection is reset before the headers of its answer."""
    return Strike(ending="reset")


@_kind("transport-reset-headers", verdict="reject", reason=_LOST)
def reset_headers(params: Document, random: Random) -> Strike:
    """The connection is reset behind the headers, which say status 200."""
    return Strike(ending="reset", headers=True)


@_kind("transport-reset-body", verdict="reject", reason=_LOST, params=Bytes)
def reset_body(params: Bytes, random: Random) -> Strike:
    """The connection is reset within the body."""
    return Strike(reply=_longer_than(params.bytes), ending="reset", headers=True, body_bytes=params.bytes)


@_kind("transport-closed-before", verdict="reject", reason=_LOST)
def closed_before(params: Document, random: Random) -> Strike:
    """The server closes the connection in order, without an answer, as one does whose keep-alive has run out."""
    return Strike(deliveries=0, ending="closed")


@_kind("transport-closed-delivered", verdict="reject", reason=_LOST)
def closed_delivered(params: Document, random: Random) -> Strike:
    """The engine generates, and the connection is closed in order without an answer."""
    return Strike(ending="closed")


@_kind("transport-stall-before", verdict="reject", reason=_LOST)
def stall_before(params: Document, random: Random) -> Strike:
    """The request is taken and never reaches the engine; nothing comes back, ever."""
    return Strike(deliveries=0, ending="stalled")


@_kind("transport-stall-delivered", verdict="reject", reason=_LOST)
def stall_delivered(params: Document, random: Random) -> Strike:
    """The engine generates, and nothing comes back, ever."""
    return Strike(ending="stalled")


@_kind("transport-stall-headers", verdict="reject", reason=_LOST)
def stall_headers(params: Document, random: Random) -> Strike:
    """The headers come, and of the body nothing, ever."""
    return Strike(ending="stalled", headers=True)


@_kind("transport-stall-body", verdict="reject", reason=_LOST, params=Bytes)
def stall_body(params: Bytes, random: Random) -> Strike:
    """The body stops in its middle, and the connection stays open."""
    return Strike(reply=_longer_than(params.bytes), ending="stalled", headers=True, body_bytes=params.bytes)


@_kind("transport-cut-byte", verdict="reject", reason=_LOST, params=Bytes)
def cut_byte(params: Bytes, random: Random) -> Strike:
    """The connection is closed in order after so many bytes of the body, fewer than announced."""
    return Strike(reply=_longer_than(params.bytes), ending="closed", headers=True, body_bytes=params.bytes)


@_kind("transport-cut-fraction", verdict="reject", reason=_LOST, params=Fraction)
def cut_fraction(params: Fraction, random: Random) -> Strike:
    """The connection is closed in order after a share of the body."""
    return Strike(ending="closed", headers=True, body_bytes=params.fraction)


@_kind("transport-cut-chunk", verdict="reject", reason=_LOST, params=Chunks)
def cut_chunk(params: Chunks, random: Random) -> Strike:
    """The body comes in pieces, and the connection is closed after so many of them."""
    arrived = params.chunks * params.chunk_bytes
    return Strike(
        reply=_longer_than(arrived),
        ending="closed",
        headers=True,
        body_bytes=arrived,
        chunk_bytes=params.chunk_bytes,
    )


@_kind("transport-trickle", verdict="tolerate", reason=_ALL_THERE, params=Trickle)
def trickle(params: Trickle, random: Random) -> Strike:
    """The body comes in pieces of one byte."""
    return Strike(chunk_bytes=params.chunk_bytes)


@_kind("transport-duplicate", verdict="tolerate", reason=_ONCE, params=Copies)
def duplicate(params: Copies, random: Random) -> Strike:
    """The request reaches the engine twice, one after the other, and the second answer comes back."""
    return Strike(deliveries=params.copies)


@_kind("transport-duplicate-at-once", verdict="tolerate", reason=_ONCE, params=Copies)
def duplicate_at_once(params: Copies, random: Random) -> Strike:
    """The request reaches the engine twice at the same time, and one answer comes back."""
    return Strike(deliveries=params.copies, at_once=True)


@_kind(
    "transport-stale",
    verdict="reject",
    reason="the reply is whole and to another question: its prompt is not the one that was asked with",
)
def stale(params: Document, random: Random) -> Strike:
    """A connection that is one answer behind, or a cache: the first reply of the rollout comes again."""
    return Strike(against=lambda earlier, answer: earlier)


def _longer_than(count: int) -> Callable[[Answer], Answer]:
    def check(answer: Answer) -> Answer:
        if len(answer.body) <= count:
            raise CannotStrike(f"the body has {len(answer.body)} bytes, no more than the {count} that arrive")
        return answer

    return check
