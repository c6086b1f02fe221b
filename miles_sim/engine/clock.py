"""Time for the work done, in whole microseconds: modelled, and waited for only where a real clock is asked for."""

import asyncio
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from pydantic import Field

from miles_sim.document import Document

EPOCH = 1_767_225_600
"""Unix seconds (2026-01-01) at which every request is said to have arrived: no wall clock reaches an answer."""
MICRO = 1_000_000


class Latency(Document):
    """Seconds for each kind of work, and whose clock they pass on. There is no jitter."""

    clock: Literal["off", "virtual", "real"] = "off"
    """`off`: a request is done as soon as it is there; the figures it is answered with follow the same model.
    `virtual`: forward passes alternate with whatever else the event loop has to do, and take no real time.
    `real`: they take the time they say."""
    request: float = Field(default=0.01, ge=0, le=3600)
    """For a request as such, before its prefill."""
    prefill_token: float = Field(default=0.000_1, ge=0, le=3600)
    """For each prompt id that is not cached."""
    decode_step: float = Field(default=0.01, ge=0, le=3600)
    """For one forward pass that gives an id or, with speculative decoding, one verify step."""

    def prefill(self, tokens: int) -> int:
        """Microseconds from the start of a request to its first id, with that many ids to run."""
        return round((self.request + tokens * self.prefill_token) * MICRO)

    def decode(self, steps: int) -> int:
        """Microseconds for that many steps after the first id."""
        return round(steps * self.decode_step * MICRO)


class Timing(NamedTuple):
    """When what happened to a request, in microseconds from its arrival."""

    started: int
    """It left the queue, for the last time where it was retracted."""
    first_token: int
    finished: int

    @property
    def latency(self) -> float:
        """Seconds from arrival to answer."""
        return self.finished / MICRO

    @property
    def queue_time(self) -> float:
        """Seconds in the queue."""
        return self.started / MICRO

    @property
    def first_token_latency(self) -> float:
        return self.first_token / MICRO

    @property
    def decode_throughput(self) -> float | None:
        """Ids a second for each id after the first; None where the first was the last."""
        spent = self.finished - self.first_token
        return MICRO / spent if spent else None

    @property
    def sent_at(self) -> float:
        return self.at(self.finished)

    @property
    def created(self) -> int:
        return int(self.sent_at)

    @staticmethod
    def at(microseconds: int) -> float:
        """Unix seconds, so long after arrival."""
        return EPOCH + microseconds / MICRO


class Clock(Protocol):
    """Says what time it is and calls back when it is time; all in microseconds of its own."""

    def now(self) -> int: ...

    def call_at(self, when: int, call: Callable[[], None]) -> asyncio.Handle:
        """Needs a running event loop."""


class VirtualClock:
    """Jumps to whatever comes next, after one turn of the event loop."""

    def __init__(self) -> None:
        self._now = 0

    def now(self) -> int:
        return self._now

    def call_at(self, when: int, call: Callable[[], None]) -> asyncio.Handle:
        def arrive() -> None:
            self._now = max(self._now, when)
            call()

        return asyncio.get_running_loop().call_soon(arrive)


class RealClock:
    """The event loop's monotonic clock, from 0 when it is first read."""

    def __init__(self) -> None:
        self._start: float | None = None

    def now(self) -> int:
        now = asyncio.get_running_loop().time()
        if self._start is None:
            self._start = now
        return round((now - self._start) * MICRO)

    def call_at(self, when: int, call: Callable[[], None]) -> asyncio.Handle:
        loop = asyncio.get_running_loop()
        return loop.call_at((loop.time() if self._start is None else self._start) + when / MICRO, call)
