"""Which steps of a request become pieces of its stream (`stream_interval`)."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from miles_sim.engine.flight import Step
from miles_sim.engine.profiles import Profile

Pace = Callable[[int, int, int], bool]
"""Ids that are there, ids that are out, interval: a piece is due."""


def pace(profile: Profile, *, speculative: bool) -> Pace:
    """The release's rule (its scheduler's output streamer)."""
    if profile.stream_pace == "unsent":
        return _unsent
    return _remainder if profile.stream_pace == "remainder" or not speculative else _multiple


def _unsent(count: int, sent: int, interval: int) -> bool:
    return interval == 1 or count - sent >= interval or (sent == 0 and count > 0)


def _remainder(count: int, sent: int, interval: int) -> bool:
    return count % interval == (1 if interval > 1 else 0)


def _multiple(count: int, sent: int, interval: int) -> bool:
    return count % interval == 0


def paced(steps: AsyncIterator[Step], interval: int, due: Pace) -> AsyncIterator[Step]:
    """The steps, taken together until a piece is due; the last one always is."""
    return steps if interval == 1 else _paced(steps, interval, due)


async def _paced(steps: AsyncIterator[Step], interval: int, due: Pace) -> AsyncIterator[Step]:
    sent = 0
    async for step in steps:
        if step.answered is not None or due(step.end, sent, interval):
            yield replace(step, start=sent)
            sent = step.end
