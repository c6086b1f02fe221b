"""What the model says: all of one reply, drawn from its key before any of it is sent."""

from typing import Any

from miles_sim.engine import seeding
from miles_sim.engine.finish import Bounds, ending
from miles_sim.engine.flight import Drawn
from miles_sim.engine.profiles import Profile
from miles_sim.engine.prompt import Prompt
from miles_sim.engine.replies import draft, reply_for, seeded_logprobs
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.settings import EngineSettings
from miles_sim.engine.speculative import accepted_drafts
from miles_sim.reply import Reply
from miles_sim.tokenizer import ByteTokenizer

CONTEXT_MARGIN = 2
"""Ids of the context that prompt and reply leave free."""


class Model:
    """Settings and tokenizer in, replies out; keeps nothing of them."""

    def __init__(self, settings: EngineSettings, profile: Profile, tokenizer: ByteTokenizer) -> None:
        self._settings = settings
        self._profile = profile
        self._tokenizer = tokenizer
        self._stop_ids = frozenset(tokenizer.stop_ids | {tokenizer.eos_id})

    def draw(self, prompt: Prompt, sampling: Sampling, key: bytes, attempt: int) -> Drawn:
        """The reply with that key to what is asked for the `attempt`-th time."""
        reply = reply_for(prompt.last_text, attempt, self._settings.rules, self._settings.default_reply)
        output_ids, reason = self._sample(reply, prompt, sampling, key)
        count, speculative = len(output_ids), self._settings.speculative
        return Drawn(
            output_ids=tuple(output_ids),
            logprobs=tuple(seeded_logprobs(seeding.chance(key, "logprobs"), count)),
            finish_reason=reason,
            misbehaved=reply.misbehave,
            drafts=tuple(accepted_drafts(count, speculative, seeding.chance(key, "drafts"))) if speculative else None,
        )

    def _sample(self, reply: Reply, prompt: Prompt, sampling: Sampling, key: bytes) -> tuple[list[int], dict[str, Any]]:
        """Output ids and finish reason."""
        room = self._settings.context_length - len(prompt.ids) - CONTEXT_MARGIN
        limit = room if sampling.max_new_tokens is None else min(sampling.max_new_tokens, room)
        drafted = draft(reply, self._tokenizer, seeding.chance(key, "text"), limit=limit, prompt_ids=prompt.ids)
        bounds = Bounds(
            max_new_tokens=limit,
            stop=sampling.stop,
            stop_ids=self._stop_ids.union(sampling.stop_token_ids) if sampling.stop_token_ids else self._stop_ids,
            abort_after=reply.abort_after,
            length_first=self._profile.finish.length_first,
            stop_string_first=self._profile.finish.stop_string_first,
        )
        end = ending(drafted, bounds, self._tokenizer)
        return drafted[: end.length], end.reason
