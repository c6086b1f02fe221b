"""`sampling_params` of `/generate`: which keys and types a release takes, and what it says of others."""

from collections.abc import Callable, Mapping
from typing import Any

from miles_sim.engine.errors import BareError, CrashError, NotModelledError
from miles_sim.engine.grammar.constraint import constraints_of
from miles_sim.engine.profiles import GenerateWire
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.steering import steering_of

DEFAULT_MAX_NEW_TOKENS = 128
WHOLE_VOCABULARY = 1 << 30
"""`top_k` that limits nothing, as SGLang spells it inside."""

_NUMBER, _INTEGER, _STRING, _FLAG = "f64", "i64", "a string", "a boolean"
_TYPES: dict[str, str] = {
    **dict.fromkeys(("max_new_tokens", "top_k", "min_new_tokens", "n", "stream_interval", "sampling_seed"), _INTEGER),
    **dict.fromkeys(("temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty"), _NUMBER),
    **dict.fromkeys(("repetition_penalty",), _NUMBER),
    **dict.fromkeys(("json_schema", "regex", "ebnf", "structural_tag"), _STRING),
    **dict.fromkeys(("ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim"), _FLAG),
    "beam_width": _INTEGER,
}
_STRINGS = "a value or an array of values for StringOrList"
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "beam_width": (None, 1),
    "ebnf_full_assistant": (None, False),
    "watermark": (None,),
    "choice": (None, []),
    "stop_strs": (None,),
    "stop_regex_strs": (None,),
    "stop_str_max_len": (0,),
    "stop_regex_max_len": (0,),
    "is_normalized": (False,),
}
"""Keys that are not modelled, with the values that ask for nothing."""
_STEERS = frozenset(
    {"ignore_eos", "min_new_tokens", "stop_regex", "logit_bias", "stream_interval"}
    | {"json_schema", "regex", "ebnf", "structural_tag"}
)


def check_params(params: Mapping[str, Any], wire: GenerateWire) -> None:
    """What the release refuses before it looks at anything else: `BareError` that names it, or `CrashError`."""
    for key, value in params.items():
        if key not in wire.sampling_fields:
            _refuse(wire, _unknown(key, wire.sampling_fields))
        expected = None if value is None else _expected(key, value)
        if expected is not None:
            _refuse(wire, f"invalid type: {_shown(value)}, expected {expected}")


def _refuse(wire: GenerateWire, message: str) -> None:
    if wire.unknown_sampling == "named":
        raise BareError(message)
    raise CrashError(f"sampling_params: {message}")


def _unknown(key: str, known: tuple[str, ...]) -> str:
    return f"unknown field `{key}`, expected one of {', '.join(f'`{name}`' for name in known)}"


def _expected(key: str, value: Any) -> str | None:
    """What should be there instead; None: it will do."""
    if key in ("stop", "stop_regex"):
        return _expected_each(value, str, "a string", _STRINGS)
    if key == "stop_token_ids":
        return _expected_each(value, int, "i64", "a sequence") if isinstance(value, list) else "a sequence"
    if key == "logit_bias":
        return _expected_bias(value)
    kind = _TYPES.get(key)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits: dict[str, Callable[[], bool]] = {
        _NUMBER: lambda: number,
        _INTEGER: lambda: isinstance(value, int) and number,
        _STRING: lambda: isinstance(value, str),
        _FLAG: lambda: isinstance(value, bool),
    }
    return None if kind is None or fits[kind]() else kind


def _expected_each(value: Any, kind: type, name: str, either: str) -> str | None:
    if isinstance(value, list):
        return next((name for entry in value if not isinstance(entry, kind) or isinstance(entry, bool)), None)
    return None if isinstance(value, kind) else either


def _expected_bias(value: Any) -> str | None:
    if not isinstance(value, dict):
        return "a map"
    numbers = (isinstance(bias, int | float) and not isinstance(bias, bool) for bias in value.values())
    return None if all(numbers) else "f64"


def _shown(value: Any) -> str:
    """As the schema's own language shows it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"boolean `{str(value).lower()}`"
    if isinstance(value, int):
        return f"integer `{value}`"
    if isinstance(value, float):
        return f"floating point `{value}`"
    if isinstance(value, str):
        return f'string "{value}"'
    return "sequence" if isinstance(value, list) else "map"


def sampling_of_params(params: Mapping[str, Any]) -> Sampling:
    """The parameters, once they were checked; `NotModelledError` for what the engine cannot do."""
    for key, neutral in _NEUTRAL.items():
        if params.get(key, neutral[0]) not in neutral:
            raise NotModelledError(f"sampling_params.{key}", params[key], repr(neutral[0]))
    stop = params.get("stop")
    top_k = _given(params, "top_k", -1)
    return Sampling(
        max_new_tokens=params.get("max_new_tokens", DEFAULT_MAX_NEW_TOKENS),
        stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
        stop_token_ids=tuple(params.get("stop_token_ids") or ()),
        seed=params.get("sampling_seed"),
        temperature=_given(params, "temperature", 1.0),
        top_p=_given(params, "top_p", 1.0),
        top_k=-1 if top_k == WHOLE_VOCABULARY else top_k,
        min_p=_given(params, "min_p", 0.0),
        frequency_penalty=_given(params, "frequency_penalty", 0.0),
        presence_penalty=_given(params, "presence_penalty", 0.0),
        repetition_penalty=_given(params, "repetition_penalty", 1.0),
        no_stop_trim=_given(params, "no_stop_trim", False),
        skip_special_tokens=_given(params, "skip_special_tokens", True),
        steering=steering_of(params, constraints_of(params, prefix="sampling_params."))
        if _STEERS & params.keys()
        else None,
    )


def _given(params: Mapping[str, Any], key: str, default: Any) -> Any:
    value = params.get(key)
    return default if value is None else value
