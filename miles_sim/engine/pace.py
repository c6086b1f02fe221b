"""Which steps of a request become pieces of its stream (`stream_interval`)."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from miles_sim.engine.flight import Step
from miles_sim.engine.profiles import Profile
from miles_sim.tokenizer import ByteTokenizer

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


class Tail:
    """Says when a reply ends with what may become a stop string: it is told when that is settled
    (schedule_batch.py `check_match_stop_str_prefix`)."""

    def __init__(self, stop: Sequence[str], tokenizer: ByteTokenizer) -> None:
        self._stop = [string for string in stop if string]
        self._tokenizer = tokenizer
        self._longest = max((len(tokenizer.encode(string)) for string in self._stop), default=0) + 1

    def __bool__(self) -> bool:
        return bool(self._stop)

    def unsettled(self, step: Step) -> bool:
        ids = step.drawn.output_ids[max(step.end - self._longest, 0) : step.end]
        tail = self._tokenizer.decode(ids)
        return any(
            string in tail or any(tail.endswith(string[:length]) for length in range(1, len(string)))
            for string in self._stop
        )


def paced(steps: AsyncIterator[Step], interval: int, due: Pace, tail: Tail) -> AsyncIterator[Step]:
    """The steps, taken together until a piece is due; the last one always is."""
    return steps if interval == 1 and not tail else _paced(steps, interval, due, tail)


async def _paced(steps: AsyncIterator[Step], interval: int, due: Pace, tail: Tail) -> AsyncIterator[Step]:
    sent = 0
    async for step in steps:
        if step.answered is not None or (due(step.end, sent, interval) and not tail.unsettled(step)):
            yield replace(step, start=sent)
            sent = step.end
