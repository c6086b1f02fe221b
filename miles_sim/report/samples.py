"""A rollout's samples as a person reads them: who wrote which ids, what of it is trained, what the counters say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from miles_sim.ledger import Generation
from miles_sim.report.text import beside, columns, cut, digest, runs, scrub
from miles_sim.targets.observation import SampleView
from miles_sim.tokenizer import ByteTokenizer, TokenizerError
from miles_sim.verify.alignment import Alignment, align
from miles_sim.verify.rule import RolloutCase

TEXT_WIDTH = 46
HEADINGS = ["who", "text", "ids", "mask"]


@dataclass(frozen=True)
class Segment:
    """A stretch of a sample's ids with one author."""

    who: str
    """The step whose reply it is, `prompt` for what stands before the response, `context` for all else."""
    start: int
    end: int
    missing: int = 0
    """Sampled ids of that reply that the sample has not."""


Row = tuple[Segment, list[str]]
"""A segment and its columns under `HEADINGS`."""


def sample_lines(rollout: RolloutCase, tokenizer: ByteTokenizer) -> list[str]:
    """What came of one rollout: its error, or each of its samples."""
    lines = [f"rollout {rollout.number} gave {_outcome(rollout)}"]
    for position, sample in enumerate(rollout.samples):
        path = aligned(sample, rollout, tokenizer)
        lines += [
            "",
            sample_head(position, sample),
            *_segment_lines(sample, rollout, path, tokenizer),
            *_facts(sample, path),
        ]
    return lines


def brief_lines(rollout: RolloutCase) -> list[str]:
    """The same in two lines a sample: what it is, and the digests of its arrays."""
    lines = [f"rollout {rollout.number} gave {_outcome(rollout)}"]
    for position, sample in enumerate(rollout.samples):
        lines += [f"  {sample_head(position, sample)}", f"    {_digests(sample)}"]
    return lines


def aligned(sample: SampleView, rollout: RolloutCase, tokenizer: ByteTokenizer) -> Alignment:
    """The generations along the sample, found by ids alone."""
    return align(sample.tokens, sample.response_length, rollout.generations, max_trim=tokenizer.max_trim_tokens)


def segments(path: Alignment, authors: Mapping[str, str]) -> list[Segment]:
    """A sample's ids from first to last, each in exactly one segment. `authors`: generation id to step."""
    found: list[Segment] = []
    place = 0
    for span in path.spans:
        found += _unsaid(place, span.start, path.response_start)
        missing = len(span.generation.output_ids) - span.matched
        found.append(Segment(authors.get(span.generation.id, "?"), span.start, span.end, missing))
        place = span.end
    return found + _unsaid(place, path.length, path.response_start)


def _unsaid(start: int, end: int, border: int) -> list[Segment]:
    """What no generation of the rollout said, split where the response begins."""
    edge = min(max(border, start), end)
    parts = [Segment("prompt", start, edge), Segment("context", edge, end)]
    return [part for part in parts if part.start < part.end]


def _outcome(rollout: RolloutCase) -> str:
    error = rollout.view.error
    if error is not None:
        ran = "after" if rollout.view.agent_ran else "before"
        return f"{error.type} ({ran} the agent ran): {cut(scrub(error.message), 160)}"
    count = len(rollout.samples)
    return "no sample" if not count else "1 sample" if count == 1 else f"{count} samples"


def sample_head(position: int, sample: SampleView) -> str:
    """What a sample is, in one line."""
    parts = [
        f"sample {position}: {sample.status}",
        f"rollout_id {_none(sample.rollout_id)}",
        f"index {_none(sample.index)}",
        f"reward {_none(sample.reward)}",
        f"{len(sample.tokens)} ids, {sample.response_length} of them response",
    ]
    return ", ".join(parts + (["removed"] if sample.remove_sample else []))


def segment_rows(sample: SampleView, rollout: RolloutCase, path: Alignment, tokenizer: ByteTokenizer) -> list[Row]:
    """The sample's segments, first to last, each with its columns."""
    rows = []
    for part in segments(path, authors(rollout)):
        text = cut(_text(sample.tokens[part.start : part.end], tokenizer), TEXT_WIDTH)
        missing = f" ({part.missing} more left out)" if part.missing else ""
        mask = _mask(sample, part, path.response_start)
        rows.append((part, [part.who, text, str(part.end - part.start), mask + missing]))
    return rows


def authors(rollout: RolloutCase) -> dict[str, str]:
    """Generation id to the step that asked for it."""
    return {turn.response_id: turn.step for turn in rollout.turns if turn.response_id is not None}


def _segment_lines(sample: SampleView, rollout: RolloutCase, path: Alignment, tokenizer: ByteTokenizer) -> list[str]:
    rows = [row for _, row in segment_rows(sample, rollout, path, tokenizer)]
    return columns([HEADINGS, *rows], indent="  ") if rows else ["  no ids"]


def _mask(sample: SampleView, part: Segment, border: int) -> str:
    if sample.loss_mask is None:
        return "absent"
    if part.end <= border:
        return "–"
    return runs(sample.loss_mask[max(part.start - border, 0) : part.end - border])


def _facts(sample: SampleView, path: Alignment) -> list[str]:
    """Counters beside the ledger's, versions, metadata, digests; one line each."""
    rows = [
        ["counters", _counters(sample, path.generations)],
        ["prefix cache", _prefix_cache(sample, path.generations)],
    ]
    rows.append(["weights", " ".join(map(_version, sample.weight_versions)) or "none"])
    rows.append(["metadata", _metadata(sample.metadata)])
    if "agent_error" in sample.metadata:
        rows.append(["agent error", cut(scrub(_error(sample.metadata["agent_error"])), 100)])
    if sample.other:
        rows.append(["other", " ".join(sorted(sample.other))])
    rows.append(["digests", _digests(sample)])
    return columns(rows, indent="  ")


def figures(sample: SampleView, path: Sequence[Generation]) -> list[tuple[str, float | None, float | None]]:
    """Each speculative figure's name, what the sample says, and what the ledger says of the generations along it."""
    told, truths = sample.spec_info, [g.spec for g in path if g.spec is not None]
    if told is None:
        return []
    accepted, drafted = sum(t.accepted for t in truths), sum(t.drafted for t in truths)
    steps, said = sum(t.verify_ct for t in truths), sum(len(g.output_ids) for g in path) if truths else 0
    return [
        ("accepted", told.spec_accept_token_num, accepted),
        ("drafted", told.spec_draft_token_num, drafted),
        ("steps", told.spec_verify_ct, steps),
        ("completion", told.completion_token_num, said),
        ("accept rate", told.accept_rate, accepted / drafted if drafted else None),
        ("accept length", told.accept_length, said / steps if steps else None),
    ]


def _counters(sample: SampleView, path: Sequence[Generation]) -> str:
    return ", ".join(f"{name} {beside(found, true)}" for name, found, true in figures(sample, path)) or "absent"


def _prefix_cache(sample: SampleView, path: Sequence[Generation]) -> str:
    told = sample.prefix_cache_info
    if told is None:
        return "absent"
    cached = beside(told.cached_tokens, sum(g.cached_tokens for g in path))
    return f"cached {cached} of {beside(told.total_prompt_tokens, sum(len(g.prompt_ids) for g in path))} prompt ids"


def _metadata(metadata: dict[str, Any]) -> str:
    """Its keys, and where the sample's leaf stands in the session's tree."""
    leaf = metadata.get("leaf")
    keys = " ".join(sorted(key for key in metadata if key != "leaf"))
    if not isinstance(leaf, dict):
        return keys or "none"
    path = "-".join(map(str, leaf.get("path_node_ids", [])))
    return f"leaf {leaf.get('node_id')} by {path}" + (f"; {keys}" if keys else "")


def _error(told: Any) -> str:
    return (
        f"{told['type']}: {told['message']}"
        if isinstance(told, dict) and {"type", "message"} <= set(told)
        else str(told)
    )


def _digests(sample: SampleView) -> str:
    told = {
        "tokens": digest(sample.tokens),
        "mask": digest(sample.loss_mask),
        "logprobs": digest(sample.rollout_log_probs),
    }
    for name in ("rollout_routed_experts", "rollout_indexer_topk"):
        rows = getattr(sample, name)
        if rows is not None:
            told[name] = f"{'×'.join(map(str, rows.shape))} {digest([rows.dtype, rows.base64]).split()[-1]}"
    return ", ".join(f"{name} {value}" for name, value in told.items())


def _text(ids: Sequence[int], tokenizer: ByteTokenizer) -> str:
    try:
        return tokenizer.decode(ids)
    except TokenizerError as error:
        return f"({error})"


def _version(version: str) -> str:
    return version or "''"


def _none(value: Any) -> str:
    return "none" if value is None else str(value)
