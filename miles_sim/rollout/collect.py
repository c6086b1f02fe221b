"""A session's records become its samples: paths, assembly, selection, and what is told about the session."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from miles_sim.rollout.assembly import assemble
from miles_sim.rollout.errors import AssemblyError
from miles_sim.rollout.mismatch import template_mismatch
from miles_sim.rollout.plain import not_json
from miles_sim.rollout.record import Record
from miles_sim.rollout.sample import Sample
from miles_sim.rollout.selection import apply_agent, pick, postprocess, without_duplicates
from miles_sim.rollout.session_metadata import all_ids, paths, session_metadata
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ChatTokenizer


@dataclass(frozen=True)
class Collected:
    """What a collect request answers."""

    samples: list[Sample]
    session_metadata: dict[str, Any]
    """`max_trim_tokens`, `accumulated_token_ids` of the latest path; `agent` if it returned anything;
    `tree` (`nodes`, `leaves`) for v2; `unfit_leaves`, paths of whose first prompt `max_seq_len` leaves nothing to
    sample, if any: `node_id`, `turns`, `tokens` (sampled ids)."""
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

    AssemblyError where records do not fit together, a hook fails, or the agent's metadata is not JSON; SettingsError
    for a hook that cannot be had.
    """
    if not isinstance(agent_metadata, dict | None):
        raise AssemblyError(f"agent metadata: {type(agent_metadata).__name__} is not a dict or None")
    if fault := not_json(agent_metadata, "agent metadata"):
        raise AssemblyError(fault)
    if max_seq_len is not None and (type(max_seq_len) is not int or max_seq_len < 1):
        raise AssemblyError(f"max_seq_len: {max_seq_len!r} is not None or a whole number of at least 1")
    ordered = sorted(records, key=lambda record: record.seq)
    metadata = session_metadata(ordered, session=settings.session, max_trim_tokens=tokenizer.max_trim_tokens)
    if agent_metadata is not None:
        metadata["agent"] = dict(agent_metadata)
    if not ordered:
        return Collected([], metadata, "no_records")
    material = []
    unfit = []
    for path in [ordered] if settings.session == "v1" else paths(ordered):
        sample = assemble(path, settings=settings, tokenizer=tokenizer, max_seq_len=max_seq_len)
        if sample is None:
            sampled = sum(len(record.output_ids) for record in path)
            unfit.append({"node_id": path[-1].seq, "turns": len(path), "tokens": sampled})
        else:
            sample.metadata |= _path_metadata(path, settings, tokenizer)
            material.append(sample)
    if unfit:
        metadata["unfit_leaves"] = unfit
    if not material:
        return Collected([], metadata, "all_truncated")
    if settings.session == "v1":
        apply_agent(material, agent_metadata)
        return Collected(material, metadata, None)
    picked = without_duplicates(pick(material, metadata, settings.sample_picker))
    samples = postprocess(picked, metadata, settings.sample_postprocessor) if picked else []
    return Collected(samples, metadata, None if samples else "none_picked")


def _path_metadata(path: Sequence[Record], settings: RolloutSettings, tokenizer: ChatTokenizer) -> dict[str, Any]:
    leaf = path[-1]
    metadata: dict[str, Any] = {"accumulated_token_ids": all_ids(leaf)}
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
