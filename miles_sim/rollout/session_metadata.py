"""What a session tells about itself: its paths, its tree, its latest ids."""

import hashlib
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from miles_sim.rollout.errors import AssemblyError
from miles_sim.rollout.record import Record


def session_metadata(
    records: Sequence[Record], *, session: Literal["v1", "v2"], max_trim_tokens: int
) -> dict[str, Any]:
    """`max_trim_tokens`, `accumulated_token_ids` of the latest record and, for v2, `tree`; records in commit order."""
    metadata: dict[str, Any] = {
        "max_trim_tokens": max_trim_tokens,
        "accumulated_token_ids": all_ids(records[-1]) if records else [],
    }
    if session == "v2":
        metadata["tree"] = tree_table(records)
    return metadata


def all_ids(record: Record) -> list[int]:
    """Prompt and reply of a record: the prefix of all that continues it."""
    return [*record.prompt_ids, *record.output_ids]


def paths(records: Sequence[Record]) -> list[list[Record]]:
    """The records from root to leaf, for each leaf in commit order; AssemblyError for a parent that is not there."""
    known: dict[int, Record] = {}
    for record in records:
        if record.seq in known:
            raise AssemblyError(f"record {record.seq}: seq: stands twice")
        if record.parent is not None and record.parent not in known:
            raise AssemblyError(f"record {record.seq}: parent: {record.parent} is no earlier record")
        known[record.seq] = record
    inner = {record.parent for record in records}
    found = []
    for leaf in (record for record in records if record.seq not in inner):
        path = [leaf]
        while (parent := path[-1].parent) is not None:
            path.append(known[parent])
        found.append(path[::-1])
    return found


def tree_table(records: Sequence[Record]) -> dict[str, Any]:
    """`nodes` and `leaves` in commit order, the shape of miles' `tree` metadata; no wall clock in it."""
    leaves = [{"node_id": path[-1].seq, "path_node_ids": [record.seq for record in path]} for path in paths(records)]
    known = {record.seq: record for record in records}
    nodes = [_node(record, None if record.parent is None else known[record.parent]) for record in records]
    return {"nodes": nodes, "leaves": leaves}


def _node(record: Record, parent: Record | None) -> Mapping[str, Any]:
    """A tree's row for one generation. `asked` is equal among siblings that asked the same thing."""
    start = len(record.prompt_ids)
    own = record.prompt_ids[len(parent.prompt_ids) if parent is not None else 0 :]
    return {
        "id": record.seq,
        "parent": record.parent,
        "seq": record.seq,
        "truncated": record.finish_reason == "length",
        "finish_reason": record.finish_reason,
        "completion_span": [start, start + len(record.output_ids)],
        "num_tokens": start + len(record.output_ids),
        "response_id": record.response_id,
        "asked": _digest(own),
        "concurrent_with": sorted(record.concurrent_with),
    }


def _digest(ids: Sequence[int]) -> str:
    packed = array("q", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return hashlib.blake2b(packed.tobytes(), digest_size=8).hexdigest()
