"""Sampling parameters: one spelling for what a reply depends on, and the ranges that SGLang allows."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from miles_sim.engine.errors import RequestError
from miles_sim.engine.profiles import Profile, SamplingWire
from miles_sim.engine.request import ChatRequest

if TYPE_CHECKING:
    from miles_sim.engine.completions import CompletionRequest


@dataclass(frozen=True)
class Sampling:
    """Two requests with equal prompt and equal sampling ask the same thing.

    Defaults are SGLang's, without a generation config of the model (protocol.py `_DEFAULT_SAMPLING_PARAMS`).
    """

    max_new_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    no_stop_trim: bool = False
    skip_special_tokens: bool = True
    tools: tuple[dict[str, Any], ...] | None = None
    """Definitions that the reply may call; None: it is not searched for calls."""

    @cached_property
    def key(self) -> bytes:
        """Equal for equal parameters, the same in every process."""
        return repr(self).encode()


def completion_params(request: "CompletionRequest", profile: Profile) -> dict[str, Any]:
    """A completion request's parameters as `sampling_params` of `/generate`."""
    names = Sampling.__dataclass_fields__.keys() & type(request).model_fields.keys() - {"seed"}
    params: dict[str, Any] = {name: getattr(request, name) for name in sorted(names)}
    params |= {"n": request.n, "max_new_tokens": request.max_tokens}
    return params | ({"sampling_seed": request.seed} if profile.sampling.seeded else {})


def sampling_of(request: ChatRequest, profile: Profile) -> Sampling:
    """The request's parameters; special tokens stay in the text where tool calls are looked for (serving_chat.py)."""
    bounds = request.max_tokens, request.max_completion_tokens
    first, second = bounds if profile.chat.max_tokens_first else bounds[::-1]
    stop = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ())
    return Sampling(
        max_new_tokens=first or second,
        stop=stop,
        stop_token_ids=tuple(request.stop_token_ids or ()),
        seed=request.seed if profile.sampling.seeded else None,
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        top_k=-1 if request.top_k is None else request.top_k,
        min_p=0.0 if request.min_p is None else request.min_p,
        frequency_penalty=request.frequency_penalty,
        presence_penalty=request.presence_penalty,
        repetition_penalty=1.0 if request.repetition_penalty is None else request.repetition_penalty,
        no_stop_trim=request.no_stop_trim,
        skip_special_tokens=request.skip_special_tokens and not request.parses_tools,
        tools=tuple(tool.model_dump() for tool in request.tools or ()) if request.parses_tools else None,
    )


def check_ranges(sampling: Sampling, wire: SamplingWire) -> None:
    """`RequestError` for the first value that SGLang's `SamplingParams.verify` refuses (sampling_params.py)."""
    for message in _out_of_range(sampling, wire):
        raise RequestError(message)


def _out_of_range(s: Sampling, wire: SamplingWire) -> Iterator[str]:
    if not 0 <= s.temperature < float("inf"):
        yield f"{wire.temperature}, got {s.temperature}."
    if not 0 < s.top_p <= 1:
        yield f"top_p must be in (0, 1], got {s.top_p}."
    if not 0 <= s.min_p <= 1:
        yield f"min_p must be in [0, 1], got {s.min_p}."
    if s.top_k != -1 and s.top_k < 1:
        yield f"top_k must be -1 (disable) or at least 1, got {s.top_k}."
    if not -2 <= s.frequency_penalty <= 2:
        yield f"frequency_penalty must be in [-2, 2], got {s.frequency_penalty}."
    if not -2 <= s.presence_penalty <= 2:
        yield f"presence_penalty must be in [-2, 2], got {s.presence_penalty}."
    if not 0 <= s.repetition_penalty <= 2 or (wire.positive_repetition_penalty and s.repetition_penalty == 0):
        yield f"{wire.repetition_penalty}, got {s.repetition_penalty}."
    if s.max_new_tokens is not None and s.max_new_tokens < 0:
        yield f"max_new_tokens must be at least 0, got {s.max_new_tokens}."
