"""What the model says: all of one reply, drawn from its key before any of it is sent."""

from typing import Any

from miles_sim.engine import seeding
from miles_sim.engine.bias import biased
from miles_sim.engine.finish import Bounds, ending
from miles_sim.engine.flight import Drawn, ends_of
from miles_sim.engine.grammar import obeyed
from miles_sim.engine.logprobs import Logprobs, State, state_after
from miles_sim.engine.packed import pack
from miles_sim.engine.profiles import Profile
from miles_sim.engine.prompt import Prompt
from miles_sim.engine.replies import draft, lengthened, reply_for, seeded_text
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.settings import EngineSettings
from miles_sim.engine.speculative import accepted_drafts
from miles_sim.engine.steering import NEUTRAL, Steering
from miles_sim.reply import Reply
from miles_sim.tokenizer import ByteTokenizer

CONTEXT_MARGIN = 2
"""Ids of the context that prompt and reply leave free."""


class Model:
    """Settings and tokenizer in, replies out; keeps nothing of them."""

    def __init__(self, settings: EngineSettings, profile: Profile, tokenizer: ByteTokenizer, *, seed: int) -> None:
        self._settings = settings
        self._seed = seed
        self._profile = profile
        self._tokenizer = tokenizer
        self._stop_ids = frozenset(tokenizer.stop_ids | {tokenizer.eos_id})

    def draw(self, prompt: Prompt, sampling: Sampling, key: bytes, attempt: int) -> Drawn:
        """The reply with that key to what is asked for the `attempt`-th time."""
        rules, default = self._settings.rules, self._settings.default_reply
        reply = reply_for(prompt.last_text, attempt, rules, default, seed=sampling.seed)
        constraint = None if sampling.steering is None else sampling.steering.constraint
        if constraint is not None:
            reply = obeyed(reply, constraint, sampling.tools, seeding.chance(key, "grammar"))
        output_ids, reason, logprobs = self._sample(reply, prompt, sampling, key)
        count, speculative, packed = len(output_ids), self._settings.speculative, pack(output_ids)
        drafts = accepted_drafts(count, speculative, seeding.chance(key, "drafts")) if speculative else None
        return Drawn(
            output_ids=tuple(output_ids),
            packed=packed,
            logprobs=Logprobs(prompt.packed, packed, seed=self._seed) if logprobs is None else tuple(logprobs),
            finish_reason=reason,
            misbehaved=reply.misbehave,
            retract_after=reply.retract_after,
            update=reply.update,
            ends=ends_of(count, drafts),
            drafts=None if drafts is None else tuple(drafts),
        )

    def _sample(
        self, reply: Reply, prompt: Prompt, sampling: Sampling, key: bytes
    ) -> tuple[list[int], dict[str, Any], list[float] | None]:
        """Output ids, finish reason, and logprobs where sampling has moved them."""
        room = self._settings.longest - prompt.size - CONTEXT_MARGIN
        limit = room if sampling.max_new_tokens is None else min(sampling.max_new_tokens, room)
        random = seeding.Stream(key, "text")
        if reply.tokens >= limit and sampling.bounded_only and self._only_text(reply):
            return seeded_text(random, reply.tokens, limit=limit), {"type": "length", "length": limit}, None
        steering = sampling.steering or NEUTRAL
        grammar, finish = steering.constraint, self._profile.finish
        drafted = draft(
            reply,
            self._tokenizer,
            random,
            limit=limit,
            prompt_ids=prompt.given,
            silent=grammar is not None and not grammar.thinks,
            tight=grammar is not None,
        )
        stop_ids = self._stop_ids.union(sampling.stop_token_ids) if sampling.stop_token_ids else self._stop_ids
        logprobs: list[float] | None = None
        if sampling.steering is not None:
            state = state_after(prompt.packed, self._seed)
            drafted, logprobs = self._steered(drafted, sampling.steering, stop_ids, key, limit, state)
        bounds = Bounds(
            max_new_tokens=limit,
            stop=sampling.stop,
            stop_ids=frozenset() if steering.endless else stop_ids,
            stop_regex=steering.stop_regex,
            abort_after=reply.abort_after,
            length_first=finish.length_first,
            stop_string_first=finish.stop_string_first,
        )
        end = ending(drafted, bounds, self._tokenizer)
        return drafted[: end.length], end.reason, None if logprobs is None else logprobs[: end.length]

    def _only_text(self, reply: Reply) -> bool:
        """Seeded text comes first, in which no stop token stands, and nothing ends it before its end."""
        said = reply.text is not None or reply.reasoning or reply.tool_calls or self._tokenizer.family.reasoning_format
        return not said and reply.misbehave is None and reply.abort_after is None

    def _steered(
        self, drafted: list[int], steering: Steering, stop_ids: frozenset[int], key: bytes, limit: int, state: State
    ) -> tuple[list[int], list[float] | None]:
        drafted = lengthened(drafted, steering, stop_ids, seeding.Stream(key, "more text"), limit=limit)
        if not steering.logit_bias or steering.constraint is not None:
            return drafted, None
        sampled = biased(
            drafted,
            steering.biases,
            seeding.chance(key, "bias"),
            limit=limit,
            state=state,
            stop_ids=frozenset() if steering.endless else stop_ids,
            vocab_size=self._tokenizer.vocab_size,
        )
        return sampled.ids, sampled.logprobs
