"""A request in flight: what it will say if nothing stops it, how far it has come, and what came of it.

What is made for every request is a named tuple: a frozen dataclass takes four times as long to make.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Coroutine, Generator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple, TypeVar

from miles_sim.engine.clock import Timing
from miles_sim.engine.errors import RequestError
from miles_sim.engine.generation import generation
from miles_sim.engine.packed import WIDTH
from miles_sim.engine.prefix_cache import Space
from miles_sim.engine.prompt import Prompt
from miles_sim.ledger import Generation, SpecTruth, WeightSpan
from miles_sim.reply import WeightUpdate
from miles_sim.rows import RowsTruth

Reason = dict[str, Any]
T = TypeVar("T")


class Asked(NamedTuple):
    """One request, checked."""

    id: str
    endpoint: str
    prompt: Prompt
    attempt: int
    key: bytes
    """From which the names in the answer are drawn, as the reply is from the key of the question."""
    question: bytes
    """Equal for requests that ask the very same thing."""
    lora: str | None = None
    load: int = 0
    """How often that adapter had been loaded anew."""
    extra_key: str | None = None
    """Requests with different ones share no prefix in the cache."""
    fields: tuple[str, ...] = ()
    """Of the request, those that came with a value."""
    cache_limit: int | None = None
    """Most prompt ids that may come from the prefix cache; None: no limit."""
    streamed: bool = False

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        return self.prompt.ids

    @property
    def space(self) -> Space:
        """Where its ids lie in the prefix cache."""
        return self.lora, self.load, self.extra_key


class Drawn(NamedTuple):
    """What the model says to it: a pure function of (seed, asked, attempt)."""

    output_ids: tuple[int, ...]
    packed: bytes
    """The same."""
    logprobs: Sequence[float]
    finish_reason: Reason
    ends: Sequence[int]
    """Ids that are there after each forward pass: see `ends_of`."""
    drafts: tuple[int, ...] | None = None
    """Drafts accepted in each verify step; None without speculative decoding."""
    misbehaved: str | None = None
    """How the model was asked to go wrong."""
    retract_after: int | None = None
    """Ids after which it is taken off the device."""
    update: WeightUpdate | None = None

    @property
    def retracted_at(self) -> int | None:
        """Forward passes after which it is taken off the device, with some still to come; None: never."""
        return None if self.retract_after is None else self._passes(self.retract_after)

    @property
    def updated_at(self) -> int | None:
        """Forward passes after which the weights are others, with some still to come; None: never."""
        return None if self.update is None else self._passes(self.update.after)

    def _passes(self, ids: int) -> int | None:
        passes = bisect_left(self.ends, ids) + 1
        return passes if passes < len(self.ends) else None


def ends_of(count: int, drafts: Sequence[int] | None) -> Sequence[int]:
    """Of `count` output ids those that are there after each forward pass: one by the prefill, then one more a step,
    or, with speculative decoding, the accepted drafts and one."""
    if drafts is None or count == 0:
        return range(1, count + 1) if count else (0,)
    return [min(end, count) for end in accumulate((1, *(accepted + 1 for accepted in drafts)))]


class Answered(NamedTuple):
    """One finished request: what it was, what was said, and how it ended. Fields that a `Generation` has mean the
    same here."""

    asked: Asked
    output_ids: tuple[int, ...]
    logprobs: Sequence[float]
    finish_reason: Reason
    cached_tokens: int
    weight_version: str
    timing: Timing
    misbehaved: str | None = None
    """How the model was asked to go wrong."""
    weight_versions: tuple[WeightSpan, ...] = ()
    retractions: int = 0
    spec: SpecTruth | None = None
    routed_experts: RowsTruth | None = None
    indexer_topk: RowsTruth | None = None
    from_queue: bool = False
    """Aborted while it waited: the release answers with a sparse `meta_info`."""

    @property
    def id(self) -> str:
        return self.asked.id

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        return self.asked.prompt_ids

    @property
    def generation(self) -> Generation:
        """The ledger's entry, made each time that it is looked at: an engine under load has no time for it."""
        asked = self.asked
        return generation(
            id=asked.id,
            endpoint=asked.endpoint,
            asked=asked.fields,
            attempt=asked.attempt,
            prompt_ids=asked.prompt_ids,
            output_ids=self.output_ids,
            logprobs=tuple(self.logprobs),
            finish_reason=self.finish_reason,
            cached_tokens=self.cached_tokens,
            weight_version=self.weight_version,
            weight_versions=self.weight_versions,
            retractions=self.retractions,
            lora=asked.lora,
            spec=self.spec,
            misbehaved=self.misbehaved,
            routed_experts=self.routed_experts,
            indexer_topk=self.indexer_topk,
        )

    def raise_for_status(self) -> None:
        """`RequestError` where the finish reason carries an HTTP status, as that of a full queue does.

        The body is that of an answer that was not streamed (sglang tokenizer_manager.py `_wait_one_response`).
        """
        reason = self.finish_reason
        status = reason.get("status_code")
        if status is not None:
            kind = "BadRequestError" if status == 400 else str(status)
            raise RequestError(reason["message"], kind=kind, status=status)


@dataclass(frozen=True)
class Step:
    """One forward pass: ids `start` to `end` of the output came by it."""

    drawn: Drawn
    start: int
    end: int
    answered: Answered | None
    """With the last step: all of it."""

    @property
    def finish_reason(self) -> Reason | None:
        return self.answered.finish_reason if self.answered else None

    @property
    def ids(self) -> tuple[int, ...]:
        """All output ids so far; costs their number, so take `delta_ids` where that will do."""
        return self.drawn.output_ids[: self.end]

    @property
    def logprobs(self) -> Sequence[float]:
        return self.drawn.logprobs[: self.end]

    @property
    def delta_ids(self) -> tuple[int, ...]:
        return self.drawn.output_ids[self.start : self.end]

    @property
    def delta_logprobs(self) -> Sequence[float]:
        return self.drawn.logprobs[self.start : self.end]


class StillInFlightError(RuntimeError):
    """Asked at once for what has to wait."""


_WAITS = "the request has to wait: generation is paused, or takes time on a clock"
Phase = Literal["held", "waiting", "running", "done"]


class Flight:
    """A request under way. Await it for what came of it, or iterate over it, pass by pass, from the first one on;
    any number of readers may do either, at any time. A flight that is done costs no turn of the event loop.

    The scheduler moves it; all else here is read only. To end it before its time: `Scheduler.abort`.
    """

    phase: Phase = "held"
    """`held`: kept outside by a pause."""
    steps: int = 0
    """Forward passes that gave ids."""
    answered: Answered | None = None
    arrived: int = 0
    started: int = 0
    first_token: int = 0
    cached_tokens: int = 0
    retractions: int = 0
    aborting: Reason | None = None
    """It ends with this at its next forward pass."""
    ticket: int = 0
    """Number of the event that moves it on; others are void."""

    def __init__(self, asked: Asked, drawn: Drawn) -> None:
        self.asked = asked
        self.drawn = drawn
        self.versions: list[tuple[str, int]] = []
        """(weight version, end of the ids by it), before the present version."""
        self._readers: list[asyncio.Future[None]] = []

    @property
    def id(self) -> str:
        return self.asked.id

    @property
    def length(self) -> int:
        """Output ids so far."""
        return self.drawn.ends[self.steps - 1] if self.steps else 0

    @property
    def packed(self) -> bytes:
        """The same ids; all of them at no cost."""
        return self.drawn.packed[: self.length * WIDTH]

    @property
    def done(self) -> bool:
        return self.answered is not None

    def __await__(self) -> Generator[Any, None, Answered]:
        while self.answered is None:
            yield from self._moved().__await__()
        return self.answered

    async def __aiter__(self) -> AsyncIterator[Step]:
        """At least one step; the last one, and only that, has a finish reason."""
        seen = start = 0
        while True:
            while seen < self.steps - 1:
                end = self.drawn.ends[seen]
                yield Step(self.drawn, start, end, None)
                seen, start = seen + 1, end
            if self.answered is not None:
                yield Step(self.drawn, start, self.length, self.answered)
                return
            if seen < self.steps:
                end = self.drawn.ends[seen]
                yield Step(self.drawn, start, end, None)
                seen, start = seen + 1, end
                continue
            await self._moved()

    def moved(self) -> None:
        """The scheduler's: wake all who wait for a change."""
        if self._readers:
            readers, self._readers = self._readers, []
            for reader in readers:
                if not reader.done():
                    reader.set_result(None)

    def _moved(self) -> "asyncio.Future[None]":
        try:
            reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        except RuntimeError:
            raise StillInFlightError(_WAITS) from None
        self._readers.append(reader)
        return reader


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives that never has to wait, without an event loop: `at_once(engine.chat(body))`.

    `StillInFlightError` where it waits, as under a clock or a pause.
    """
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    work.close()
    raise StillInFlightError(_WAITS)
