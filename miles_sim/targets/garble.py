"""A samples payload broken on its way to the driver, and what such a file holds. Standard library only.

The payload is a safetensors file: eight bytes of length, a JSON header of that length, then the tensors' bytes.
"""

import json
from collections.abc import Callable
from typing import Any

META = "_samples_meta"
"""Tensor that holds the JSON part (miles `rollout/session/samples/codec.py`)."""

Tensors = dict[str, tuple[str, list[int], bytes]]
"""Name to dtype, shape and bytes."""


def garbled(kind: str, payload: bytes) -> bytes:
    """`payload` broken as `kind` says (`Scenario.garble`); one without samples is cut short whatever the kind."""
    if kind == "cut":
        return payload[: len(payload) // 2]
    tensors = tensors_of(payload)
    if "tokens.0" not in tensors:
        return payload[: len(payload) // 2]
    return file_of(_KINDS[kind](tensors))


def tensors_of(payload: bytes) -> Tensors:
    """What a safetensors file holds; ValueError for bytes that are none."""
    size = int.from_bytes(payload[:8], "little")
    if len(payload) < 8 + size:
        raise ValueError(f"payload: {len(payload)} bytes, and a header of {size}")
    header, data = json.loads(payload[8 : 8 + size]), payload[8 + size :]
    header.pop("__metadata__", None)
    found: Tensors = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        if not 0 <= start <= end <= len(data):
            raise ValueError(f"payload: tensor {name!r} lies at {start}..{end} of {len(data)} bytes")
        found[name] = (entry["dtype"], entry["shape"], data[start:end])
    return found


def file_of(tensors: Tensors) -> bytes:
    """The safetensors file of these tensors."""
    header: dict[str, Any] = {}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(data for _, _, data in tensors.values())


def _without_field(tensors: Tensors) -> Tensors:
    dtype, _, data = tensors[META]
    meta = json.loads(data)
    for row in meta["samples"]:
        row.pop("status", None)
    text = json.dumps(meta).encode()
    return {**tensors, META: (dtype, [len(text)], text)}


def _narrowed(tensors: Tensors) -> Tensors:
    """The ids as bytes of half the width: another dtype, as many entries."""
    _, shape, data = tensors["tokens.0"]
    narrow = b"".join(data[at : at + 4] for at in range(0, len(data), 8))
    return {**tensors, "tokens.0": ("I32", shape, narrow)}


def _no_json(tensors: Tensors) -> Tensors:
    dtype, shape, data = tensors[META]
    return {**tensors, META: (dtype, shape, b"{" * len(data))}


_KINDS: dict[str, Callable[[Tensors], Tensors]] = {
    "no_tensor": lambda tensors: {name: held for name, held in tensors.items() if name != "rollout_log_probs.0"},
    "wrong_dtype": _narrowed,
    "stray_tensor": lambda tensors: {**tensors, "tokens.999": tensors["tokens.0"]},
    "no_json": _no_json,
    "no_field": _without_field,
}
