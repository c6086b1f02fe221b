"""Sampling parameters: one spelling for what a reply depends on, and the ranges that SGLang allows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from miles_sim.engine.errors import NotModelledError, RequestError
from miles_sim.engine.formats import FORMATS
from miles_sim.engine.grammar.constraint import Constraint, check_constraint, constraints_of, format_schema
from miles_sim.engine.profiles import Profile, SamplingWire
from miles_sim.engine.request import ChatRequest
from miles_sim.engine.response_format import NO_SCHEMA
from miles_sim.engine.steering import NEUTRAL, Steering, check_bias, check_stop_regex, steering_of

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
    steering: Steering | None = field(default=None, repr=False)
    """What few requests ask for."""

    @cached_property
    def bounded_only(self) -> bool:
        """Of all that may end a reply early it asks for a bound alone."""
        return not self.stop and not self.stop_token_ids and self.steering is None

    @property
    def stream_interval(self) -> int | None:
        """Ids in a piece of a stream."""
        return None if self.steering is None else self.steering.stream_interval

    @property
    def calls_in_array(self) -> bool:
        """The reply is a JSON array of calls."""
        constraint = None if self.steering is None else self.steering.constraint
        return constraint is not None and constraint.kind == "call_array"

    @cached_property
    def key(self) -> bytes:
        """Equal for equal parameters, the same in every process."""
        steering = "" if self.steering in (None, NEUTRAL) else self.steering
        return f"{self!r}{steering}".encode()


def served(sampling: Sampling, profile: Profile, tool_parser: str | None, *, thinks: bool) -> Sampling:
    """With its grammar, if any, as a server with this parser holds to it: behind a thought, calls as it reads them."""
    steering = sampling.steering
    if steering is None or not steering.constraints:
        return sampling
    native = profile.chat.required_calls == "native" and tool_parser is not None and FORMATS[tool_parser].tagged
    constraints = tuple(constraint.served(native=native, thinks=thinks) for constraint in steering.constraints)
    return replace(sampling, steering=replace(steering, constraints=constraints))


def completion_params(request: "CompletionRequest", profile: Profile) -> dict[str, Any]:
    """A completion request's parameters as `sampling_params` of `/generate`."""
    names = Sampling.__dataclass_fields__.keys() & type(request).model_fields.keys() - {"seed"}
    params: dict[str, Any] = {name: getattr(request, name) for name in sorted(names)}
    params |= {"n": request.n, "max_new_tokens": request.max_tokens, "min_new_tokens": request.min_tokens}
    params |= {name: getattr(request, name) for name in ("ignore_eos", "stop_regex", "logit_bias")}
    params |= {name: getattr(request, name) for name in ("json_schema", "regex", "ebnf")}
    if request.response_format is not None:
        asked = format_schema(request.response_format)
        if asked is None and request.response_format.type == "json_schema":
            raise RequestError(NO_SCHEMA, kind="BadRequest")
        params |= {"json_schema": asked} if asked is not None else {}
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
        tools=tuple(request.offered) if request.parses_tools else None,
        steering=steering_of(_steered(request), _constraints(request, profile)),
    )


def _steered(request: ChatRequest) -> dict[str, Any]:
    return {
        "ignore_eos": request.ignore_eos,
        "min_new_tokens": request.min_tokens,
        "stop_regex": request.stop_regex,
        "logit_bias": request.logit_bias,
    }


def _constraints(request: ChatRequest, profile: Profile) -> Sequence[Constraint]:
    """Grammars of the request; that of a tool that must be called stands alone (protocol.py `to_sampling_params`)."""
    if request.response_format is None and not (request.regex or request.ebnf or request.must_call):
        return ()
    schema = None if request.response_format is None else format_schema(request.response_format)
    found = constraints_of({"json_schema": schema, "regex": request.regex, "ebnf": request.ebnf}, prefix="")
    if not request.must_call or not request.tools:
        return found
    if not any(constraint.text for constraint in found):
        return (Constraint("calls", place="tool_choice"),)
    if profile.chat.tool_grammar_clash == "refused":
        raise RequestError(_CLASH, kind="BadRequest")
    raise NotModelledError("tool_choice", request.tool_choice, "auto, none beside a grammar of the request's own")


_CLASH = (
    "tool_choice 'required' or a named tool cannot be combined with response_format, regex, or ebnf: the tool-call "
    "constraint and the output constraint cannot both be honored."
)


def check_ranges(sampling: Sampling, wire: SamplingWire, *, vocab_size: int = 1 << 32) -> None:
    """`RequestError` for the first value that SGLang's `SamplingParams` refuse (sampling_params.py `normalize`, then
    `verify`), then for a grammar that cannot be compiled."""
    steering = sampling.steering
    if steering is not None:
        check_stop_regex(steering.stop_regex, wire)
    for message in _out_of_range(sampling, wire):
        raise RequestError(message)
    if steering is not None:
        for message in _wrong_steering(steering, sampling.max_new_tokens, wire, vocab_size):
            raise RequestError(message)
        check_bias(steering)
        for constraint in steering.constraints:
            check_constraint(constraint, sampling.tools, wire.bad_grammar)


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


def _wrong_steering(steering: Steering, most: int | None, wire: SamplingWire, vocab_size: int) -> Iterator[str]:
    least = steering.min_new_tokens
    if least < 0:
        yield f"min_new_tokens must be in [0, max_new_tokens], got {least}."
    if most is not None and least > most:
        yield f"min_new_tokens must be in [0, max_new_tokens({most})], got {least}."
    for token, _ in steering.logit_bias:
        try:
            known = 0 <= int(token) < vocab_size
        except ValueError as error:
            yield str(error)
            return
        if not known:
            yield f"logit_bias must has keys in [0, {vocab_size - 1}], got {token}."
    if len(steering.constraints) > 1:
        yield wire.grammars
