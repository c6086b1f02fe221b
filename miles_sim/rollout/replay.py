"""Replay rows: which experts, or which indexed positions, each transition used."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from miles_sim.rollout.errors import AssemblyError
from miles_sim.rollout.record import Record
from miles_sim.rollout.sample import Rows
from miles_sim.rollout.settings import RolloutSettings


@dataclass(frozen=True)
class ReplayField:
    """One replay array: its name in a sample, in `meta_info`, and the request's offset."""

    sample: str
    meta_info: str
    start: str


REPLAY_FIELDS = (
    ReplayField("rollout_routed_experts", "routed_experts", "routed_experts_start_len"),
    ReplayField("rollout_indexer_topk", "indexer_topk", "indexer_topk_start_len"),
)


def check_rows(
    meta_info: Mapping[str, Any],
    total_ids: int,
    *,
    finish_reason: str,
    offsets: Mapping[str, Any],
    settings: RolloutSettings,
) -> None:
    """AssemblyError unless the payloads of a generation over `total_ids` prompt and sampled ids hold its rows.

    What was asked for must be there, except with an abort, which often comes without.
    """
    asked = {"routed_experts": settings.routing_replay, "indexer_topk": settings.indexer_replay}
    for replay in REPLAY_FIELDS:
        place = f"meta_info.{replay.meta_info}"
        payload = meta_info.get(replay.meta_info)
        count = max(total_ids - 1 - (offsets.get(replay.start) or 0), 0)
        if payload is not None:
            _decode(payload, count, _layers(replay, meta_info, settings, "meta_info"), place)
        elif asked[replay.meta_info] and count and finish_reason != "abort":
            raise AssemblyError(f"{place}: missing, though it was asked for")


def opens_gap(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> bool:
    """A payload that the earlier generation of a path has and the later one lacks (aborted ones often do)."""
    return any(earlier.get(f.meta_info) is not None and later.get(f.meta_info) is None for f in REPLAY_FIELDS)


def stitch(
    replay: ReplayField, turns: Sequence[tuple[Record, int]], total_ids: int, settings: RolloutSettings
) -> Rows | None:
    """Rows of `total_ids - 1` transitions, each as reported by the generation that sampled its token.

    `turns`: the path's records, each with the position where its part of the ids ends. A generation's own part
    runs from the last id before it, which was sampled but not passed over yet; where ids behind that one were
    trimmed, it was. What a later prefill reports about those transitions is not used.
    """
    if all(record.meta_info.get(replay.meta_info) is None for record, _ in turns):
        return None
    parts: list[tuple[str, Rows]] = []
    begin = 0
    for record, end in turns:
        passed = len(record.prompt_ids) + len(record.output_ids) - 1
        until = max(min(end, passed), begin)
        rows = _rows(replay, record, settings, begin, until)
        parts.append((f"record {record.seq}: meta_info.{replay.meta_info}", rows))
        begin = until
    return joined_rows(parts)[: max(total_ids - 1, 0)]


def joined_rows(parts: Sequence[tuple[str, Rows]]) -> Rows:
    """A copy of all rows in a row; each part with the place that an error names.

    AssemblyError where rows are of two shapes; a part without rows may be of any.
    """
    told = [part for part in parts if len(part[1])] or parts[:1]
    first, shape = told[0][0], told[0][1].shape[1:]
    for place, rows in told:
        if rows.shape[1:] != shape:
            raise AssemblyError(f"{place}: rows of shape {rows.shape[1:]}, but {shape} in {first}")
    return np.concatenate([rows for _, rows in told])


def _rows(replay: ReplayField, record: Record, settings: RolloutSettings, begin: int, until: int) -> Rows:
    """Rows `begin..until` of one generation's payload, which starts at the offset that was asked for."""
    place = f"record {record.seq}: meta_info.{replay.meta_info}"
    payload = record.meta_info.get(replay.meta_info)
    if payload is None:
        raise AssemblyError(f"{place}: absent, though a later generation of the path has it")
    start = record.replay_offsets.get(replay.start, 0)
    count = len(record.prompt_ids) + len(record.output_ids) - 1 - start
    if not 0 <= start <= begin:
        raise AssemblyError(f"{place}: starts at row {start}, which leaves out row {begin}")
    layers = _layers(replay, record.meta_info, settings, f"record {record.seq}: meta_info")
    rows = _decode(payload, max(count, 0), layers, place)
    return rows[begin - start : until - start]


def _layers(replay: ReplayField, meta_info: Mapping[str, Any], settings: RolloutSettings, place: str) -> int:
    if replay.meta_info == "routed_experts":
        return settings.routed_experts_layers
    layers = meta_info.get("indexer_topk_num_layers", 1)
    if isinstance(layers, bool) or not isinstance(layers, int) or layers < 1:
        raise AssemblyError(f"{place}.indexer_topk_num_layers: {layers!r} is not at least 1")
    return layers


def _decode(payload: Any, count: int, layers: int, place: str) -> Rows:
    """`count` rows of little-endian int32 from base64, shape (count, layers, k)."""
    try:
        raw = base64.b64decode(payload, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise AssemblyError(f"{place}: not base64: {error}") from None
    if len(raw) % 4 or (len(raw) // 4) % max(count * layers, 1) or (not count and raw):
        raise AssemblyError(f"{place}: {len(raw)} bytes are no {count} rows of {layers} layers of int32")
    if not count:
        return np.zeros((0, layers, 0), dtype=np.int32)
    return np.frombuffer(raw, dtype="<i4").astype(np.int32).reshape(count, layers, -1)
