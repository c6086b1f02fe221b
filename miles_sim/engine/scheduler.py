"""The scheduler: which requests wait, which run, and what abort, pause and a change of weights do to them."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from heapq import heappop, heappush
from operator import itemgetter
from typing import Literal

from miles_sim.engine.clock import Clock, Latency, RealClock, Timing, VirtualClock
from miles_sim.engine.experts import Experts, Indexer, experts_truth
from miles_sim.engine.finish import ABORTED
from miles_sim.engine.flight import Answered, Asked, Flight, Reason
from miles_sim.engine.generation import spans_of
from miles_sim.engine.prefix_cache import PrefixCache
from miles_sim.engine.release import FlushRule
from miles_sim.engine.settings import EngineSettings
from miles_sim.engine.speculative import truth
from miles_sim.ledger import WeightSpan
from miles_sim.rows import RowsTruth

PauseMode = Literal["abort", "retract", "in_place"]
QUEUE_ABORTED: Reason = {"type": "abort", "message": "Abort in waiting queue"}
"""Of a request that waited (tokenizer_manager.py `_handle_abort_req`)."""
UNASKED = 50
"""Ids in a piece of what is not streamed, too (output_streamer.py `DEFAULT_FORCE_STREAM_INTERVAL`): a request that is
aborted while it waits, retracted, is answered with the pieces that were sent."""
QUEUE_FULL: Reason = {"type": "abort", "status_code": 503, "message": "The request queue is full."}


class Scheduler:
    """Moves flights. Each has a time line of its own: it is slowed by others only while it waits for a place.

    Without a clock a flight is done when `submit` returns, unless generation is paused.
    """

    def __init__(
        self,
        settings: EngineSettings,
        cache: PrefixCache,
        *,
        finished: Callable[[Flight, Answered], None],
        seed: int = 0,
        by_span: bool = True,
    ) -> None:
        """`by_span`: an answer's weight version is that of its last id; else the engine's when it is given."""
        self._seed, self._by_span = seed, by_span
        self.weight_version = settings.weight_version
        self.paused: PauseMode | None = None
        self.flights: OrderedDict[str, Flight] = OrderedDict()
        """All that are not done, by id, in order of arrival."""
        self.held: list[Flight] = []
        self.waiting: deque[Flight] = deque()
        self.running: dict[Flight, None] = {}
        self._settings = settings
        self._latency: Latency = settings.latency
        self._cache = cache
        self._finished = finished
        self._clock: Clock = RealClock() if settings.latency.clock == "real" else VirtualClock()
        self._events: list[tuple[int, int, Flight]] = []
        self._tickets = 0
        self._instant: int | None = None
        """The time for which an event is dealt with: what follows from it happens then, however late it is."""
        self._alarm: asyncio.Handle | None = None
        self._alarm_at = 0
        self._frozen: dict[Flight, int] = {}
        """Of requests that stand still: microseconds to their next step."""
        self._draining = 0
        self._watchers: list[asyncio.Future[None]] = []

    def now(self) -> int:
        """Microseconds on the engine's clock."""
        return self._clock.now() if self._instant is None else self._instant

    @property
    def stopped(self) -> bool:
        """No forward pass is run."""
        return self.paused in ("retract", "in_place")

    @property
    def closed(self) -> bool:
        """New requests stay outside: generation is paused, or weights wait for the last request to finish."""
        return self.paused is not None or self._draining > 0

    @property
    def idle(self) -> bool:
        """Nothing runs and nothing waits; what a pause keeps outside does not count."""
        return not self.running and not self.waiting

    def submit(self, flight: Flight) -> None:
        """A request arrives."""
        if self.closed:
            self.flights[flight.id] = flight
            self.held.append(flight)
        else:
            self._enter(flight)

    def abort(self, id: str | None = None) -> None:
        """Abort that request, or all without an id. One that waits is answered at once, one that runs after one more
        forward pass; one that is kept outside, or unknown, is not touched.

        With a known one all go whose ids begin with its id (tokenizer_manager.py and scheduler.py `abort_request`).
        """
        prefix = id if id in self.flights else "" if id is None else None
        for flight in [f for name, f in self.flights.items() if prefix is not None and name.startswith(prefix)]:
            if flight.phase == "waiting":
                self.waiting.remove(flight)
                self._finish(flight, dict(QUEUE_ABORTED), from_queue=True)
            elif flight.phase == "running":
                flight.aborting = dict(ABORTED)

    def drop(self, flight: Flight) -> None:
        """Its client is gone: abort it, even where it is kept outside."""
        if flight.phase == "held" and not flight.done:
            self.held.remove(flight)
            self._finish(flight, dict(QUEUE_ABORTED), from_queue=True)
        elif self.flights.get(flight.id) is flight:
            self.abort(flight.id)

    async def pause(self, mode: PauseMode) -> None:
        """Keep new requests outside. `abort`: abort all, and return when the last one has been answered; `retract`:
        running ones go back to the queue and lose their KV; `in_place`: they stand still.

        Aborting what stands still ends it with what it has; a real engine would wait for itself for ever.
        """
        self.paused = mode
        if mode == "retract":
            for flight in list(self.running):
                self._retract(flight)
            self._wind()
        elif mode == "in_place":
            self._freeze()
            self._wind()
        else:
            self.abort()
            for flight in list(self._frozen):
                self._finish(flight, flight.aborting or dict(ABORTED))
            await self.settled()

    def resume(self) -> None:
        """Go on, and let in what came meanwhile, in order of arrival."""
        self.paused = None
        frozen, self._frozen = self._frozen, {}
        now = self.now() if frozen else 0
        for flight, left in frozen.items():
            self._move_at(now + left, flight)
        self._let_in()
        self._admit()
        self._tell()

    async def settled(self) -> None:
        """Until nothing runs and nothing waits."""
        while not self.idle:
            await self._changed()

    async def resumed(self) -> None:
        """Until generation is not paused."""
        while self.paused is not None:
            await self._changed()

    def _changed(self) -> "asyncio.Future[None]":
        """Done when the engine falls idle or is resumed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.append(future)
        return future

    def _tell(self) -> None:
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    async def change_weights(self, version: str | None, *, flush: FlushRule | None) -> bool:
        """Under a pause at once; else when all that is under way has finished, with new requests kept outside.

        `flush`: what the release needs to empty its prefix cache, None to leave it; False where that was not so.
        """
        if self.paused is None:
            self._draining += 1
            try:
                await self.settled()
            finally:
                self._draining -= 1
        if version is not None:
            self.set_version(version)
        flushed = flush is None or self.flush(flush)
        self._let_in()
        return flushed

    async def exclusive(self) -> None:
        """Until nothing is under way, with new requests kept outside meanwhile; at once under a pause."""
        await self.change_weights(None, flush=None)

    async def without(self, lora: str) -> None:
        """Until no request is under way that runs on this adapter."""
        for flight in [flight for flight in self.flights.values() if flight.asked.lora == lora]:
            await flight

    def set_version(self, version: str) -> None:
        """Ids sampled from here on are by this version; what is in flight keeps the one it had for what it has."""
        for flight in self.flights.values():
            if flight.length:
                flight.versions.append((self.weight_version, flight.length))
        self.weight_version = version

    def can_flush(self, needs: FlushRule) -> bool:
        """Nothing runs and, as far as the release minds, nothing waits; what is kept outside does not count."""
        waiting_minds = needs == "idle" or (needs == "idle_or_paused" and not self.stopped)
        return not self.running and not (waiting_minds and self.waiting)

    def flush(self, needs: FlushRule) -> bool:
        """Empty the prefix cache; False, and nothing done, where it cannot be."""
        if not self.can_flush(needs):
            return False
        self._cache.clear()
        return True

    def _let_in(self) -> None:
        if not self.closed:
            held, self.held = self.held, []
            for flight in held:
                self._enter(flight)

    def _enter(self, flight: Flight) -> None:
        if self._latency.clock == "off":
            self._run_through(flight)
            return
        flight.arrived = self.now()
        flight.phase = "waiting"
        self.flights[flight.id] = flight
        if not self._room and len(self.waiting) == self._settings.max_queued_requests:
            self._finish(flight, dict(QUEUE_FULL), from_queue=True)
            return
        self.waiting.append(flight)
        self._admit(flight.arrived)

    @property
    def _room(self) -> bool:
        limit = self._settings.max_running_requests
        return limit is None or len(self.running) < limit

    def _admit(self, now: int | None = None) -> None:
        while self.waiting and self._room and not self.stopped:
            self._start(self.waiting.popleft(), self.now() if now is None else now)

    def _start(self, flight: Flight, now: int) -> None:
        flight.phase, flight.started = "running", now
        self.running[flight] = None
        self._move_at(now + self._latency.prefill(self._uncached(flight)), flight)

    def _uncached(self, flight: Flight) -> int:
        """Ids to prefill; after a retraction those that were sampled too."""
        asked, cached = flight.asked, 0
        if self._settings.prefix_cache and not flight.retractions:
            prompt = asked.prompt
            cached = self._cache.cached(prompt.packed, question=asked.question, space=asked.space)
            if asked.cache_limit is not None:
                cached = min(cached, asked.cache_limit)
            flight.cached_tokens = cached
        return asked.prompt.size + flight.length - cached

    def _run_through(self, flight: Flight) -> None:
        """All of it, in no time; the figures say how long it would have taken."""
        drawn = flight.drawn
        flight.first_token = took = self._latency.prefill(self._uncached(flight))
        if drawn.update is not None and (updated_at := drawn.updated_at) is not None:
            flight.steps = updated_at
            flight.versions.append((self.weight_version, flight.length))
            self._update(flight)
        if drawn.retract_after is not None and (retracted_at := drawn.retracted_at) is not None:
            flight.steps, flight.retractions = retracted_at, 1
            took += self._latency.prefill(self._uncached(flight))
        flight.steps = len(drawn.ends)
        self._finish(flight, drawn.finish_reason, at=took + self._latency.decode(flight.steps - 1))

    def _move_at(self, when: int, flight: Flight) -> None:
        self._tickets += 1
        flight.ticket = self._tickets
        heappush(self._events, (when, self._tickets, flight))
        if self._instant is None:
            self._wind()

    def _wind(self) -> None:
        """Set the alarm to the next event, if there is one."""
        while self._events and self._events[0][2].ticket != self._events[0][1]:
            heappop(self._events)
        when = self._events[0][0] if self._events else None
        if self._alarm is not None:
            if self._alarm_at == when:
                return
            self._alarm.cancel()
            self._alarm = None
        if when is not None:
            self._alarm, self._alarm_at = self._clock.call_at(when, self._tick), when

    def _tick(self) -> None:
        """Deal with all that is due; who waits for it is woken before the next alarm is set."""
        self._alarm = None
        due = max(self._clock.now(), self._alarm_at)
        while self._events and self._events[0][0] <= due:
            self._instant, ticket, flight = heappop(self._events)
            if flight.ticket == ticket:
                self._step(flight, self._instant)
        self._instant = None
        self._wind()

    def _step(self, flight: Flight, now: int) -> None:
        """One forward pass has given its ids."""
        flight.steps += 1
        if flight.steps == 1:
            flight.first_token = now - flight.arrived
        if flight.aborting is not None:
            self._finish(flight, flight.aborting, at=now - flight.arrived)
        elif flight.steps == len(flight.drawn.ends):
            self._finish(flight, flight.drawn.finish_reason, at=now - flight.arrived)
        else:
            if flight.steps == flight.drawn.updated_at:
                self._update(flight)
            if flight.steps == flight.drawn.retracted_at:
                self._retract(flight)
                self._admit(now)
            else:
                self._move_at(now + self._latency.decode(1), flight)
            flight.moved()

    def _update(self, flight: Flight) -> None:
        """The weights are updated in place, as its reply has it."""
        if flight.drawn.update is not None:
            self.set_version(flight.drawn.update.version)

    def _finish(self, flight: Flight, reason: Reason, *, at: int | None = None, from_queue: bool = False) -> None:
        if at is None:
            at = self.now() - flight.arrived
        answered = self._answered(flight, reason, at, from_queue)
        flight.answered, flight.phase, flight.ticket = answered, "done", 0
        if self.flights.pop(flight.id, None) is not None:  # not there without a clock
            self.running.pop(flight, None)
            self._frozen.pop(flight, None)
        if flight.steps and self._settings.prefix_cache:
            asked, output = flight.asked, b"" if from_queue else flight.packed  # it lost its KV when it was retracted
            self._cache.add(asked.prompt.packed, output, question=asked.question, space=asked.space)
        self._finished(flight, answered)
        flight.moved()
        if self.waiting:
            self._admit()
        if self._watchers and self.idle:
            self._tell()

    def _answered(self, flight: Flight, reason: Reason, at: int, from_queue: bool) -> Answered:
        drawn, length, settings = flight.drawn, flight.length, self._settings
        if from_queue and not flight.asked.streamed:
            length -= length % UNASKED
        whole = length == len(drawn.output_ids)
        spec = None
        if drawn.drafts is not None and settings.speculative is not None:
            spec = truth(drawn.drafts[: max(flight.steps - 1, 0)], settings.speculative)
        spans = []
        if flight.versions:
            before = [(version, min(end, length)) for version, end in flight.versions]
            spans = spans_of([*before, (self.weight_version, length)])
        return Answered(
            asked=flight.asked,
            misbehaved=drawn.misbehaved,
            output_ids=drawn.output_ids if whole else drawn.output_ids[:length],
            logprobs=drawn.logprobs if whole else drawn.logprobs[:length],
            finish_reason=reason,
            cached_tokens=flight.cached_tokens,
            weight_version=spans[-1].version if spans and self._by_span else self.weight_version,
            timing=Timing(max(flight.started - flight.arrived, 0), flight.first_token, at),
            weight_versions=tuple(spans) if len(spans) > 1 else (),
            retractions=flight.retractions,
            spec=spec,
            routed_experts=None if settings.experts is None else self._rows(settings.experts, flight.asked, spans),
            indexer_topk=None if settings.indexer is None else self._rows(settings.indexer, flight.asked, spans),
            from_queue=from_queue,
        )

    def _rows(self, model: Experts | Indexer, asked: Asked, spans: list[WeightSpan]) -> RowsTruth:
        tokens, version = asked.prompt.size, self.weight_version
        return experts_truth(model, seed=self._seed, prompt_tokens=tokens, weight_version=version, spans=spans)

    def _retract(self, flight: Flight) -> None:
        """Off the device, to the end of the queue (scheduler.py `_add_request_to_queue`)."""
        del self.running[flight]
        self._frozen.pop(flight, None)
        flight.phase, flight.ticket = "waiting", 0
        flight.retractions += 1
        self.waiting.append(flight)

    def _freeze(self) -> None:
        due = {
            flight: when
            for when, ticket, flight in sorted(self._events, key=itemgetter(0, 1))
            if flight.ticket == ticket
        }
        now = self.now() if due else 0
        for flight, when in due.items():
            self._frozen[flight] = max(when - now, 0)
            flight.ticket = 0
