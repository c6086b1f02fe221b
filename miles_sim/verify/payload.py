"""The samples payload as it crossed between session server and driver, read without any implementation's help."""

import base64
import json
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from miles_sim.document import Document
from miles_sim.targets.garble import META, Tensors, tensors_of

_ENTRIES = {"I64": "q", "F64": "d", "U8": "B", "I32": "i"}
"""safetensors' name of a dtype to `struct`'s."""
LISTS = {"tokens": "I64", "loss_mask": "U8", "rollout_log_probs": "F64"}
ROWS = {"rollout_routed_experts": "I32", "rollout_indexer_topk": "I32"}


class Spec(Document):
    """`spec_info` on the wire."""

    spec_accept_token_num: int
    spec_draft_token_num: int
    spec_verify_ct: int
    completion_token_num: int
    uncounted_token_num: int = 0
    """Completion ids of generations that took verify steps of which the engine sent no count; not in miles."""


class Cache(Document):
    """`prefix_cache_info` on the wire."""

    cached_tokens: int
    total_prompt_tokens: int


class Row(Document):
    """The JSON part of one sample."""

    response: str
    response_length: int
    status: Literal["completed", "truncated", "aborted", "failed"]
    weight_versions: tuple[str, ...]
    spec_info: Spec | None = None
    """Not in miles of August 2026."""
    prefix_cache_info: Cache
    metadata: dict[str, Any]
    reward: float | dict[str, Any] | None = None
    """v2 only; null keeps the input's."""
    nulls: tuple[Literal["loss_mask", "rollout_log_probs", "rollout_routed_experts", "rollout_indexer_topk"], ...]
    """Array fields that are None and have no tensor."""


class Meta(Document):
    """The tensor `_samples_meta`: JSON in bytes."""

    samples: tuple[Row, ...]
    session_metadata: dict[str, Any]
    empty_reason: str | None
    session: Literal["v1", "v2"] | None = None


class TensorView(Document):
    """One tensor of the file."""

    dtype: Literal["I64", "F64", "U8", "I32"]
    shape: tuple[int, ...]


class SamplesWire(Document):
    """A samples payload: `<field>.<i>` for each array of sample i, and the JSON part."""

    tensors: dict[str, TensorView]
    """`tokens` I64, `loss_mask` U8, `rollout_log_probs` F64, replay rows I32; little-endian, C order."""
    meta: Meta


@dataclass(frozen=True)
class Payload:
    """A payload that was read."""

    tensors: Tensors
    meta: dict[str, Any]

    @property
    def document(self) -> dict[str, Any]:
        """As `SamplesWire` describes it."""
        views = {name: {"dtype": dtype, "shape": shape} for name, (dtype, shape, _) in self.tensors.items()}
        return {"tensors": views, "meta": self.meta}

    def values(self, number: int) -> dict[str, Any]:
        """Fields of one sample: lists, `(shape, bytes)` of rows, and what is JSON; without `nulls`."""
        row = dict(self.meta["samples"][number])
        values = dict.fromkeys(row.pop("nulls"))
        for name in (*LISTS, *ROWS):
            tensor = self.tensors.get(f"{name}.{number}")
            if tensor is not None:
                values[name] = _list(tensor) if name in LISTS else (tuple(tensor[1]), tensor[2])
        return {**values, **row}


@lru_cache(maxsize=16)  # each rule that looks at it does so in turn
def read_payload(text: str) -> Payload:
    """The payload in base64; ValueError for bytes that are none. Nobody changes it: it is read once for all."""
    tensors = tensors_of(base64.b64decode(text))
    if META not in tensors:
        raise ValueError(f"payload: there is no {META}")
    return Payload({name: tensor for name, tensor in tensors.items() if name != META}, json.loads(tensors[META][2]))


def wrong_tensors(payload: Payload) -> list[str]:
    """Tensors that are not of the table: unknown, of another dtype or rank, of no sample; and those that lack."""
    wrong = []
    due = set()
    for number, row in enumerate(payload.meta["samples"]):
        due |= {f"{name}.{number}" for name in (*LISTS, *ROWS) if name not in row["nulls"]}
    wrong += [f"{name} is missing" for name in sorted(due - payload.tensors.keys())]
    for name, (dtype, shape, _) in payload.tensors.items():
        field = name.rpartition(".")[0]
        expected = {**LISTS, **ROWS}.get(field)
        if name not in due:
            wrong.append(f"{name} belongs to no sample")
        elif dtype != expected or (field in LISTS and len(shape) != 1):
            wrong.append(f"{name} is {dtype} of shape {shape}, not {expected}")
    return wrong


def _list(tensor: tuple[str, list[int], bytes]) -> list[Any]:
    dtype, _, data = tensor
    entry = _ENTRIES[dtype]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(entry)}{entry}", data))
