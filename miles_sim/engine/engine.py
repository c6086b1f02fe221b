"""The simulated engine: settings and a seed in, answers and the ledger of what was really generated out."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING

from miles_sim.engine import profiles, seeding
from miles_sim.engine.adapters import Adapters
from miles_sim.engine.drawing import Model
from miles_sim.engine.errors import RequestError
from miles_sim.engine.flight import Answered, Asked, Flight, Step
from miles_sim.engine.log import Attempts, GenerationLog
from miles_sim.engine.packed import WIDTH
from miles_sim.engine.prefix_cache import PrefixCache
from miles_sim.engine.prompt import Prompt
from miles_sim.engine.release import release
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.scheduler import Scheduler
from miles_sim.engine.settings import EngineSettings
from miles_sim.engine.statistics import Statistics
from miles_sim.ledger import Generation
from miles_sim.tokenizer import ByteTokenizer
from miles_sim.transport import ASGIApp

if TYPE_CHECKING:
    from miles_sim.engine.serving import Serving

MAX_TOTAL_TOKENS = 1 << 20
"""What an engine without a limit says that its KV cache holds."""
Gone = Callable[[], Awaitable[None]]
"""Returns when the client has hung up."""


class Engine:
    """One simulated SGLang server.

    A reply is a pure function of the seed, what was asked (prompt ids, text of the last message, sampling
    parameters, adapter) and how often that had been asked before: not of arrival order, headers, time or port. How
    much of it is said may also depend on who aborts it, and the figures of time on who else is served, as in life.
    Of several engines with one seed each has its `number`: they say the same, under ids that never collide.
    """

    def __init__(self, settings: EngineSettings, *, seed: int, number: int = 0) -> None:
        self.settings = settings
        self.seed = seed
        self.number = number
        self.profile = profiles.load(settings.profile)
        self.release = release(settings.profile)
        self.model_path = settings.model
        """Follows an update of the weights from disk."""
        self.adapters = Adapters(settings.lora, disabled_is_refused=self.release.lora_disabled == "refused")
        self.statistics = Statistics(times=settings.metrics)
        self.by_streaming = {streamed: Statistics() for streamed in (False, True) if settings.metrics}
        """Where metrics are on, the same of requests that were not streamed and of those that were."""
        self.tokenizer = ByteTokenizer(settings.tokenizer)
        self.requests_open = 0
        """HTTP requests under way."""
        self.prefix_cache = PrefixCache(settings.cache_tokens)
        self.scheduler = Scheduler(
            settings, self.prefix_cache, finished=self._enter, seed=seed, by_span=self.profile.weight_versions
        )
        self._model = Model(settings, self.profile, self.tokenizer, seed=seed)
        self._attempts = Attempts(settings.ledger.questions)
        self._log = GenerationLog(settings.ledger)

    @property
    def version(self) -> str:
        """Version of the release, as `/server_info` tells it."""
        return self.profile.release.removeprefix("sglang ")

    @property
    def max_total_tokens(self) -> int:
        """Ids that the KV cache holds."""
        return self.settings.cache_tokens or MAX_TOTAL_TOKENS

    @property
    def generations(self) -> list[Generation]:
        """What was really generated, in the order in which it was done; with a bounded ledger the end of it."""
        return self._log.generations

    @cached_property
    def serving(self) -> "Serving":
        """The endpoints that generate."""
        from miles_sim.engine.serving import Serving

        return Serving(self)

    @cached_property
    def app(self) -> ASGIApp:
        """The ASGI application of this engine."""
        from miles_sim.engine.server import application

        return application(self)

    async def chat(self, body: bytes, *, content_type: str = "application/json", gone: Gone | None = None) -> bytes:
        """The JSON of a chat completion, or all events of a stream in one; `RequestError` for what is refused.
        Cancelled, it aborts its request."""
        said = await self.serving.chat(body, content_type=content_type, gone=gone)
        return said if isinstance(said, bytes) else b"".join([piece async for piece in said])

    def submit(
        self,
        prompt: Prompt,
        sampling: Sampling,
        *,
        endpoint: str,
        rid: str | None = None,
        lora: str | None = None,
        extra_key: str | None = None,
        fields: tuple[str, ...] = (),
        cache_limit: int | None = None,
        streamed: bool = False,
    ) -> Flight:
        """Take a request that was checked, and let it fly. `rid`: the id to give it, else one is drawn. `fields`:
        what it set, for the ledger. `cache_limit`: most prompt ids that may come from the cache, the logprobs of
        the others being asked for. `streamed`: its answer is; for metrics.

        Without a clock, and not paused, it is done on return; the ledger has it when it is done. `RequestError` where
        a request of that `rid` is under way.
        """
        if rid in self.scheduler.flights:
            listed = self.release.duplicate_rid == "listed"
            raise RequestError(f"Duplicate request {f'IDs detected: {[rid]}' if listed else f'ID detected: {rid}'}")
        question = prompt.question(sampling, lora)
        attempt = self._attempts.next(question)
        prompt = self._log.known(question, prompt)
        key = seeding.reply_key(self.seed, question, attempt)
        names = seeding.names_key(key, self.number)
        asked = Asked(
            id=rid or names.hex(),
            endpoint=endpoint,
            prompt=prompt,
            attempt=attempt,
            key=names,
            question=question,
            lora=lora,
            load=self.adapters.loads(lora),
            extra_key=extra_key,
            fields=fields,
            cache_limit=cache_limit,
            streamed=streamed,
        )
        flight = Flight(asked, self._model.draw(prompt, sampling, key, attempt))
        self.scheduler.submit(flight)
        return flight

    async def answer(self, flight: Flight, *, gone: Gone | None = None) -> Answered:
        """What comes of it. It is aborted when its client is gone, or who waits for it here is cancelled."""
        if flight.answered is not None:
            return flight.answered
        watch = asyncio.ensure_future(self._drop_when(flight, gone)) if gone else None
        try:
            return await flight
        finally:
            if watch:
                watch.cancel()
            self.scheduler.drop(flight)

    async def steps(self, flight: Flight) -> AsyncIterator[Step]:
        """Its forward passes, for a stream; when that is closed or cancelled before the end, it is aborted."""
        try:
            async for step in flight:
                yield step
        finally:
            self.scheduler.drop(flight)

    async def _drop_when(self, flight: Flight, gone: Gone) -> None:
        await gone()
        self.scheduler.drop(flight)

    def _enter(self, flight: Flight, answered: Answered) -> None:
        self.statistics.count(answered)
        if self.by_streaming:
            self.by_streaming[answered.asked.streamed].count(answered)
        self._log.append(answered, flight.packed[: len(answered.output_ids) * WIDTH])

    def close(self) -> None:
        """Close what is open: the file to which the ledger is spooled."""
        self._log.close()
