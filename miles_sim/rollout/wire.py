"""The samples payload between session server and driver: one safetensors file with a JSON part inside.

Per sample, `<field>.<i>` holds each array; everything else stands in `_samples_meta`, JSON in one uint8
tensor: `samples` (the JSON fields and `nulls`, the array fields that are None), `session`, `session_metadata`,
`empty_reason`. Layout and field names as in miles' `rollout/session/samples/codec.py`.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import orjson
from safetensors import SafetensorError
from safetensors.numpy import load, save

from miles_sim.rollout.counters import PrefixCacheInfo, SpecInfo
from miles_sim.rollout.errors import AssemblyError, WireError
from miles_sim.rollout.plain import not_json
from miles_sim.rollout.sample import RESERVED, Sample, read_status

META = "_samples_meta"
EMPTY_REASONS = ("no_records", "all_truncated", "none_picked")


@dataclass(frozen=True)
class WireField:
    """How one computed field crosses."""

    codec: Literal["ids", "floats", "rows", "json"]
    """`ids` and `floats`: a list, one entry a token; `rows`: an int32 array of any rank from 1, never converted."""
    dtype: str = ""
    largest: int | None = None
    """Of `ids`: the largest value allowed; the least is 0."""
    nullable: bool = True


FIELDS: dict[str, WireField] = {
    "tokens": WireField("ids", "int64", nullable=False),
    "loss_mask": WireField("ids", "uint8", largest=1),
    "rollout_log_probs": WireField("floats", "float64"),
    "rollout_routed_experts": WireField("rows", "int32"),
    "rollout_indexer_topk": WireField("rows", "int32"),
    "response": WireField("json"),
    "response_length": WireField("json"),
    "status": WireField("json"),
    "weight_versions": WireField("json"),
    "spec_info": WireField("json"),
    "prefix_cache_info": WireField("json"),
    "metadata": WireField("json"),
    "reward": WireField("json"),
}
"""Every field that the session server computes; no other field crosses."""

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "response": (str,),
    "response_length": (int,),
    "status": (str,),
    "weight_versions": (list,),
    "spec_info": (dict,),
    "prefix_cache_info": (dict,),
    "metadata": (dict,),
    "reward": (int, float, dict, type(None)),
}


@dataclass(frozen=True)
class SamplesReply:
    """A decoded payload."""

    samples: list[Sample]
    session_metadata: dict[str, Any]
    empty_reason: str | None


def encode_samples(
    samples: Sequence[Sample],
    session_metadata: Mapping[str, Any],
    empty_reason: str | None = None,
    *,
    session: Literal["v1", "v2"],
) -> bytes:
    """The payload of `samples`; WireError for a value that the table of fields refuses."""
    tensors: dict[str, npt.NDArray[Any]] = {}
    rows = []
    for number, sample in enumerate(samples):
        if not isinstance(sample, Sample):
            raise WireError(f"samples[{number}]: {type(sample).__name__} is not a Sample")
        row: dict[str, Any] = {"nulls": []}
        for name, spec in FIELDS.items():
            value, place = getattr(sample, name), f"samples[{number}].{name}"
            if spec.codec == "json":
                row[name] = _json_value(name, value)
            elif value is None and spec.nullable:
                row["nulls"].append(name)
            else:
                tensors[f"{name}.{number}"] = _array(spec, value, place)
        rows.append(row)
    meta = {
        "samples": rows,
        "session": session,
        "session_metadata": dict(session_metadata),
        "empty_reason": _empty_reason(empty_reason, samples),
    }
    if fault := not_json(meta, META):
        raise WireError(fault)
    try:
        tensors[META] = np.frombuffer(orjson.dumps(meta), dtype=np.uint8)
    except TypeError as error:
        raise WireError(f"{META}: {error}") from None
    return save(tensors)


def decode_samples(payload: bytes, input_sample: Sample, *, session: Literal["v1", "v2"]) -> SamplesReply:
    """Each wire sample laid over a copy of `input_sample`; nothing is shared with it or among them.

    A null reward keeps the input's; metadata is merged into the input's, key by key. WireError for a payload
    that the table of fields refuses, for leftovers in it, and for an input sample that holds computed values.
    """
    tensors = _load(payload)
    meta = _meta(tensors)
    if meta.get("session") != session:
        raise WireError(f"{META}.session: {meta.get('session')!r} is not {session!r}, which the driver speaks")
    rows = _typed(meta.get("samples"), (list,), f"{META}.samples")
    session_metadata = _typed(meta.get("session_metadata"), (dict,), f"{META}.session_metadata")
    empty_reason = _empty_reason(meta.get("empty_reason"), rows)
    if rows:
        check_input(input_sample)
    samples = [_overlay(number, row, tensors, input_sample) for number, row in enumerate(rows)]
    if tensors:
        raise WireError(f"payload: tensor {sorted(tensors)[0]!r} belongs to no sample")
    return SamplesReply(samples, session_metadata, empty_reason)


def check_input(sample: Sample) -> None:
    """WireError unless an input sample is free of what the overlay would replace or leave out of step."""
    blank = Sample()
    for name in ("weight_versions", "spec_info", "prefix_cache_info", "teacher_log_probs", "opd_reverse_kl"):
        if getattr(sample, name) != getattr(blank, name):
            raise WireError(f"input sample: {name}: {getattr(sample, name)!r} is not {getattr(blank, name)!r}")


def _json_value(name: str, value: Any) -> Any:
    if name == "status":
        return value.value
    return value.to_dict() if name in ("spec_info", "prefix_cache_info") else value


def _array(spec: WireField, value: Any, place: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise WireError(f"{place}: not an array: {error}") from None
    if spec.codec == "rows":
        return np.ascontiguousarray(_checked(spec, array, place))
    kinds = "iu" if spec.codec == "ids" else "fiu"
    if array.ndim != 1 or (array.size and array.dtype.kind not in kinds):
        raise WireError(f"{place}: {array.dtype} of rank {array.ndim} is no list of {spec.codec}")
    # Range is checked before narrowing: an entry of 257 would be 1 in a byte.
    _check_range(spec, array, place)
    return np.ascontiguousarray(array.astype(spec.dtype))


def _checked(spec: WireField, array: npt.NDArray[Any], place: str) -> npt.NDArray[Any]:
    """The array, if its dtype, rank and values are the table's."""
    if array.dtype != np.dtype(spec.dtype):
        raise WireError(f"{place}: dtype {array.dtype} is not {spec.dtype}")
    if (array.ndim < 1) if spec.codec == "rows" else (array.ndim != 1):
        raise WireError(f"{place}: rank {array.ndim} is not allowed")
    _check_range(spec, array, place)
    return array


def _check_range(spec: WireField, array: npt.NDArray[Any], place: str) -> None:
    if not array.size or spec.codec == "rows":
        return
    if spec.codec == "floats":
        if not np.isfinite(array).all():
            bad = int(np.argmin(np.isfinite(array)))
            raise WireError(f"{place}[{bad}]: {float(array[bad])} is not a finite number")
        return
    low, high = int(array.min()), int(array.max())
    if low < 0 or (spec.largest is not None and high > spec.largest):
        allowed = "at least 0" if spec.largest is None else f"in 0..{spec.largest}"
        raise WireError(f"{place}: {low if low < 0 else high} is not {allowed}")


def _load(payload: bytes) -> dict[str, npt.NDArray[Any]]:
    try:
        return load(payload)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise WireError(f"payload: no safetensors file: {error}") from None


def _meta(tensors: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
    array = tensors.pop(META, None)
    if array is None or array.dtype != np.uint8 or array.ndim != 1:
        found = "missing" if array is None else f"{array.dtype} of rank {array.ndim}"
        raise WireError(f"payload: {META}: {found}, not a row of uint8")
    try:
        meta = orjson.loads(array.tobytes())
    except orjson.JSONDecodeError as error:
        raise WireError(f"{META}: no JSON: {error}") from None
    return _typed(meta, (dict,), META)  # type: ignore[no-any-return]


def _overlay(number: int, row: Any, tensors: dict[str, npt.NDArray[Any]], input_sample: Sample) -> Sample:
    place = f"{META}.samples[{number}]"
    row = _typed(row, (dict,), place)
    nulls = _typed(row.get("nulls"), (list,), f"{place}.nulls")
    for name in nulls:
        spec = FIELDS.get(name) if isinstance(name, str) else None
        if spec is None or spec.codec == "json" or not spec.nullable:
            raise WireError(f"{place}.nulls: {name!r} is no field that may be null")
    sample = copy.deepcopy(input_sample)
    for name, spec in FIELDS.items():
        if spec.codec == "json":
            if name not in row:
                raise WireError(f"{place}.{name}: missing")
            _set_json(sample, name, _typed(row[name], _JSON_TYPES[name], f"{place}.{name}"), place)
        elif name in nulls:
            setattr(sample, name, None)
        else:
            array = tensors.pop(f"{name}.{number}", None)
            if array is None:
                raise WireError(f"payload: tensor '{name}.{number}' is missing")
            array = _checked(spec, array, f"samples[{number}].{name}")
            setattr(sample, name, array.copy() if spec.codec == "rows" else array.tolist())
    try:
        sample.validate()
    except AssemblyError as error:
        raise WireError(f"samples[{number}]: {error}") from None
    return sample


def _set_json(sample: Sample, name: str, value: Any, place: str) -> None:
    try:
        if name == "status":
            sample.status = read_status(value)
        elif name == "spec_info":
            sample.spec_info = SpecInfo.from_dict(value)
        elif name == "prefix_cache_info":
            sample.prefix_cache_info = PrefixCacheInfo.from_dict(value)
        elif name == "metadata":
            if clash := sorted(set(RESERVED) & set(value) & set(sample.metadata)):
                raise WireError(f"{place}.metadata.{clash[0]}: the input sample has it, too")
            sample.metadata.update(value)
        elif name == "weight_versions":
            sample.weight_versions = [_typed(version, (str,), f"{place}.weight_versions") for version in value]
        elif name != "reward" or value is not None:
            setattr(sample, name, value)
    except AssemblyError as error:
        raise WireError(f"{place}.{error}") from None


def _typed(value: Any, kinds: tuple[type, ...], place: str) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        allowed = ", ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
        raise WireError(f"{place}: {value!r:.80} is not {allowed}")
    return value


def _empty_reason(reason: Any, samples: Sequence[Any]) -> str | None:
    if samples and reason is not None:
        raise WireError(f"{META}.empty_reason: {reason!r} beside {len(samples)} samples")
    if not samples and reason not in EMPTY_REASONS:
        raise WireError(f"{META}.empty_reason: {reason!r} is not one of {list(EMPTY_REASONS)}")
    return None if reason is None else str(reason)
