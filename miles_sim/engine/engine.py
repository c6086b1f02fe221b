"""The simulated engine: settings and a seed in, answers and the ledger of what was really generated out."""

from collections import Counter
from functools import cached_property
from typing import Any

import orjson

from miles_sim.engine import profiles, seeding
from miles_sim.engine.clock import timing
from miles_sim.engine.finish import Bounds, ending
from miles_sim.engine.prefix_cache import PrefixCache
from miles_sim.engine.prompt import Prompt, check_length, check_vocabulary, prompt_of
from miles_sim.engine.replies import draft, reply_for, seeded_logprobs
from miles_sim.engine.request import check, check_hidden_states, parse
from miles_sim.engine.sampling import Sampling, check_ranges, sampling_of
from miles_sim.engine.settings import EngineSettings
from miles_sim.engine.speculative import accepted_drafts, truth
from miles_sim.engine.wire import Answered, chat_completion, token_texts
from miles_sim.ledger import Generation, SpecTruth
from miles_sim.tokenizer import ByteTokenizer
from miles_sim.transport import ASGIApp


class Engine:
    """One simulated SGLang server.

    A reply is a pure function of the seed, what was asked (prompt ids, text of the last message, sampling
    parameters) and how often that had been asked before: not of arrival order, headers, time or port.
    """

    def __init__(self, settings: EngineSettings, *, seed: int) -> None:
        self.settings = settings
        self.seed = seed
        self.profile = profiles.load(settings.profile)
        self.tokenizer = ByteTokenizer(settings.tokenizer)
        self.generations: list[Generation] = []
        """What was really generated, in order of arrival."""
        self.requests_open = 0
        """HTTP requests under way."""
        self.prefix_cache = PrefixCache()
        self._attempts: Counter[bytes] = Counter()
        self._texts = token_texts(settings.tokenizer)

    @cached_property
    def app(self) -> ASGIApp:
        """The ASGI application of this engine."""
        from miles_sim.engine.server import application

        return application(self)

    def chat(self, body: bytes, *, content_type: str = "application/json") -> bytes:
        """The JSON of a chat completion; `RequestError` for what is refused."""
        wire = self.profile.chat
        request = parse(body, content_type=content_type, ignored_fields=wire.ignored_fields)
        check(request, stream_refuses=wire.stream_refuses)
        prompt = prompt_of(request, self.tokenizer, bad_arguments=wire.bad_arguments)
        sampling = sampling_of(request)
        check_vocabulary(prompt.ids, self.tokenizer.vocab_size)
        check_length(len(prompt.ids), sampling.max_new_tokens, self.settings.context_length)
        check_hidden_states(request)
        check_ranges(sampling, temperature_rule=wire.temperature_rule)
        answered = self.generate(prompt, sampling, endpoint="chat", rid=request.rid)
        return orjson.dumps(
            chat_completion(self.profile, request, sampling, answered, tokenizer=self.tokenizer, texts=self._texts)
        )

    def generate(self, prompt: Prompt, sampling: Sampling, *, endpoint: str, rid: str | None = None) -> Answered:
        """Sample a reply to a prompt that was checked, and enter it in the ledger. `rid`: the id to give it."""
        asked = seeding.asked_key(prompt.ids, prompt.last_text, sampling)
        attempt = self._attempts[asked]
        self._attempts[asked] += 1
        key = seeding.reply_key(self.seed, asked, attempt)
        output_ids, reason = self._sample(prompt, sampling, key, attempt)
        spec = self._speculation(len(output_ids), key)
        cached = 0
        if self.settings.prefix_cache:
            cached = self.prefix_cache.cached(prompt.ids, asked_before=attempt > 0)
            self.prefix_cache.add(prompt.ids, output_ids)
        generation = Generation(
            id=rid or seeding.name(key, "id", 32),
            endpoint=endpoint,
            attempt=attempt,
            prompt_ids=prompt.ids,
            output_ids=tuple(output_ids),
            logprobs=tuple(seeded_logprobs(seeding.chance(key, "logprobs"), len(output_ids))),
            finish_reason=reason,
            cached_tokens=cached,
            weight_version=self.settings.weight_version,
            spec=spec,
        )
        self.generations.append(generation)
        steps = max(len(output_ids) - 1, 0) if spec is None else spec.verify_ct
        return Answered(generation, timing(prefilled=len(prompt.ids) - cached, decode_steps=steps), key)

    def _sample(self, prompt: Prompt, sampling: Sampling, key: bytes, attempt: int) -> tuple[list[int], dict[str, Any]]:
        """Output ids and finish reason."""
        reply = reply_for(prompt.last_text, attempt, self.settings.rules, self.settings.default_reply)
        room = self.settings.context_length - len(prompt.ids) - 2
        limit = room if sampling.max_new_tokens is None else min(sampling.max_new_tokens, room)
        drafted = draft(reply, self.tokenizer, seeding.chance(key, "text"), limit=limit)
        bounds = Bounds(
            max_new_tokens=limit,
            stop=sampling.stop,
            stop_ids=self.tokenizer.stop_ids | {self.tokenizer.eos_id} | set(sampling.stop_token_ids),
            abort_after=reply.abort_after,
            stop_string_first=self.profile.chat.stop_string_first,
        )
        end = ending(drafted, bounds, self.tokenizer)
        return drafted[: end.length], end.reason

    def _speculation(self, output_tokens: int, key: bytes) -> SpecTruth | None:
        settings = self.settings.speculative
        if settings is None:
            return None
        return truth(accepted_drafts(output_tokens, settings, seeding.chance(key, "drafts")), settings)
