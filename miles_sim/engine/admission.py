"""Which requests an engine takes, once it has the ids of the prompt."""

from typing import TYPE_CHECKING, Any

from miles_sim.engine.errors import NotModelledError, RequestError
from miles_sim.engine.experts import check_start
from miles_sim.engine.prompt import Prompt, check_length, check_vocabulary
from miles_sim.engine.request import check_hidden_states
from miles_sim.engine.sampling import Sampling, check_ranges
from miles_sim.engine.wire import Want, Wire

if TYPE_CHECKING:
    from miles_sim.engine.engine import Engine


class Admission:
    """The release's checks, in its order. All methods raise `RequestError`."""

    def __init__(self, engine: "Engine", wire: Wire) -> None:
        self.wire = wire
        self._adapters = engine.adapters
        self._context, self._longest = engine.settings.context_length, engine.settings.longest

    def admit(
        self, prompt: Prompt, sampling: Sampling, want: Want, lora: str | None, *, hidden_states: Any
    ) -> str | None:
        """The adapter; `RequestError` for what the release refuses once it has the ids, in its order
        (tokenizer_manager.py, then scheduler.py)."""
        profile, prompt_tokens = self.wire.profile, prompt.size
        adapter = self._adapters.resolve(lora)
        self.check_ids(prompt, sampling)
        self._check_token_ids(want)
        check_hidden_states(hidden_states, profile.hidden_states_refusal)
        check_ranges(sampling, profile.sampling, vocab_size=self.wire.tokenizer.vocab_size)
        self._check_starts(want, prompt_tokens)
        return adapter

    def check_ids(self, prompt: Prompt, sampling: Sampling) -> None:
        check_vocabulary(prompt, self.wire.tokenizer.vocab_size)
        check_length(
            prompt.size,
            sampling.max_new_tokens,
            self._context,
            self._longest,
            may_fill=self.wire.profile.may_fill_context,
        )

    def _check_token_ids(self, want: Want) -> None:
        size = self.wire.tokenizer.vocab_size
        for token in want.token_ids or ():
            if 0 <= token < size:
                continue
            if not self.wire.profile.generate.checks_token_ids_logprob:
                raise NotModelledError("token_ids_logprob", token, f"0 to {size - 1}")
            raise RequestError(
                f"token_ids_logprob contains out-of-vocabulary token id {token}; valid range is [0, {size})."
            )

    def _check_starts(self, want: Want, prompt_tokens: int) -> None:
        start = want.logprob_start
        if start < -1:
            raise NotModelledError("logprob_start_len", start, "-1 or more")
        none = self.wire.profile.generate.default_input_logprobs == "none"
        if start > prompt_tokens - (not none):
            raise RequestError(
                f"req.logprob_start_len={start} is higher than the number of input tokens "
                f"len(req.origin_input_ids)={prompt_tokens}. Please use a smaller logprob_start_len."
            )
        if want.routed_experts:
            check_start(want.routed_experts_start, prompt_tokens)
