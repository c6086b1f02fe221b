"""A session's records become its samples: paths, assembly, selection, and what is told about the session."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from miles_sim.rollout.assembly import assemble
from miles_sim.rollout.errors import AssemblyError
from miles_sim.rollout.mismatch import template_mismatch
from miles_sim.rollout.plain import not_json
from miles_sim.rollout.record import Record
from miles_sim.rollout.sample import Sample
from miles_sim.rollout.selection import apply_agent, pick, postprocess
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ChatTokenizer


@dataclass(frozen=True)
class Collected:
    """What a collect request answers."""

    samples: list[Sample]
    session_metadata: dict[str, Any]
    """`max_trim_tokens`, `accumulated_token_ids` of the latest path; `agent` if it returned anything;
    `tree` (`nodes`, `leaves`) for v2."""
    empty_reason: str | None
    """Why there are no samples: `no_records`, `all_truncated` (no path's first generation fits), `none_picked`."""


def collect(
    records: Sequence[Record],
    *,
    settings: RolloutSettings,
    tokenizer: ChatTokenizer,
    max_seq_len: int | None,
    agent_metadata: dict[str, Any] | None,
) -> Collected:
    """Samples of one session: v1 takes all records as one path, v2 makes one sample of each leaf that is picked.

    AssemblyError where records do not fit together, a hook fails, or the agent's metadata is not JSON.
    """
    if fault := not_json(agent_metadata, "agent metadata"):
        raise AssemblyError(fault)
    ordered = sorted(records, key=lambda record: record.seq)
    paths = [ordered] if settings.session == "v1" and ordered else _paths(ordered)
    metadata = _session_metadata(ordered, paths, settings, tokenizer, agent_metadata)
    if not ordered:
        return Collected([], metadata, "no_records")
    material = []
    for path in paths:
        sample = assemble(path, settings=settings, tokenizer=tokenizer, max_seq_len=max_seq_len)
        if sample is not None:
            sample.metadata |= _path_metadata(path, settings, tokenizer)
            material.append(sample)
    if not material:
        return Collected([], metadata, "all_truncated")
    if settings.session == "v1":
        apply_agent(material, agent_metadata)
        return Collected(material, metadata, None)
    picked = pick(material, metadata, settings.sample_picker)
    samples = postprocess(picked, metadata, settings.sample_postprocessor) if picked else []
    return Collected(samples, metadata, None if samples else "none_picked")


def _paths(records: Sequence[Record]) -> list[list[Record]]:
    """The records from root to leaf, for each leaf in commit order."""
    known: dict[int, Record] = {}
    for record in records:
        if record.seq in known:
            raise AssemblyError(f"record {record.seq}: seq: stands twice")
        if record.parent is not None and record.parent not in known:
            raise AssemblyError(f"record {record.seq}: parent: {record.parent} is no earlier record")
        known[record.seq] = record
    inner = {record.parent for record in records}
    paths = []
    for leaf in (record for record in records if record.seq not in inner):
        path = [leaf]
        while (parent := path[-1].parent) is not None:
            path.append(known[parent])
        paths.append(path[::-1])
    return paths


def _session_metadata(
    records: Sequence[Record],
    paths: Sequence[Sequence[Record]],
    settings: RolloutSettings,
    tokenizer: ChatTokenizer,
    agent_metadata: Mapping[str, Any] | None,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "max_trim_tokens": tokenizer.max_trim_tokens,
        "accumulated_token_ids": _all_ids(records[-1]) if records else [],
    }
    if agent_metadata is not None:
        metadata["agent"] = dict(agent_metadata)
    if settings.session == "v2":
        known = {record.seq: record for record in records}
        nodes = [_node(record, None if record.parent is None else known[record.parent]) for record in records]
        leaves = [{"node_id": path[-1].seq, "path_node_ids": [record.seq for record in path]} for path in paths]
        metadata["tree"] = {"nodes": nodes, "leaves": leaves}
    return metadata


def _node(record: Record, parent: Record | None) -> dict[str, Any]:
    """A tree's row for one generation. `asked` is equal among siblings that asked the same thing."""
    start = len(record.prompt_ids)
    own = record.prompt_ids[len(parent.prompt_ids) if parent is not None else 0 :]
    asked = hashlib.blake2b(np.asarray(own, dtype="<i8").tobytes(), digest_size=8).hexdigest()
    return {
        "id": record.seq,
        "parent": record.parent,
        "seq": record.seq,
        "truncated": record.finish_reason == "length",
        "finish_reason": record.finish_reason,
        "completion_span": [start, start + len(record.output_ids)],
        "num_tokens": start + len(record.output_ids),
        "response_id": record.response_id,
        "asked": asked,
        "concurrent_with": sorted(record.concurrent_with),
    }


def _path_metadata(path: Sequence[Record], settings: RolloutSettings, tokenizer: ChatTokenizer) -> dict[str, Any]:
    leaf = path[-1]
    metadata: dict[str, Any] = {"accumulated_token_ids": _all_ids(leaf)}
    if settings.session == "v2":
        metadata["leaf"] = {
            "node_id": leaf.seq,
            "parent": leaf.parent,
            "path_node_ids": [record.seq for record in path],
            "response_id": leaf.response_id,
        }
    if mismatch := template_mismatch(path, tokenizer):
        metadata["tito_session_mismatch"] = mismatch
    return metadata


def _all_ids(record: Record) -> list[int]:
    return [*record.prompt_ids, *record.output_ids]
