"""Where a direct rollout goes on, and how what is sampled there joins what the sample holds already."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from miles_sim.rollout.direct.request import prompt_ids
from miles_sim.rollout.errors import AssemblyError
from miles_sim.rollout.replay import joined_rows
from miles_sim.rollout.sample import REPLAY, RESERVED, Rows, Sample, Status
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ChatTokenizer


@dataclass(frozen=True)
class Start:
    """Where a rollout begins, or goes on."""

    ids: Sequence[int]
    """All ids so far; the prompt's alone in a rollout that was never begun."""
    begin: int
    """Where the response begins in them."""
    generations: int = 0
    """Engine requests behind them."""
    turns: int = 0
    """Replies that were finished."""
    own: int = 0
    """Ids at the end that belong to the reply that was broken off."""


def start_of(
    sample: Sample, tokenizer: ChatTokenizer, settings: RolloutSettings, specs: Sequence[Mapping[str, Any]] | None
) -> Start:
    """The start of a sample that is pending or aborted; AssemblyError for any other status, or one that disagrees.

    A sample with ids goes on from just these: whether it was begun shows in its ids, never in its text.
    """
    if sample.status not in (Status.PENDING, Status.ABORTED):
        raise AssemblyError(f"status: {sample.status.value!r} is over; a rollout begins pending or aborted")
    sample.validate()
    _check_metadata(sample, settings)
    begin = prompt_ids(sample, tokenizer, settings, specs)
    segments = lifecycle(sample)
    if not sample.response_length:
        return Start(ids=begin, begin=len(begin), generations=len(segments))
    if sample.rollout_log_probs is None:
        raise AssemblyError(f"rollout_log_probs: None, though {sample.response_length} ids were sampled before")
    if not segments:  # someone else's sample: all that was sampled is one reply
        return Start(ids=list(sample.tokens), begin=len(begin), own=sample.response_length)
    finished = [segment["finish_reason"] != "abort" for segment in segments]
    if finished[-1]:
        raise AssemblyError("metadata.lifecycle: the last reply came to its end; nothing is left to go on with")
    broken = segments[len(segments) - finished[::-1].index(True) if any(finished) else 0 :]
    return Start(
        ids=list(sample.tokens),
        begin=len(begin),
        generations=len(segments),
        turns=sum(finished),
        own=sum(end - first for first, end in (segment["span"] for segment in broken)),
    )


def _check_metadata(sample: Sample, settings: RolloutSettings) -> None:
    """In a rollout that was never begun, what stands under a reserved key is the data set's, and would be lost."""
    if sample.response_length or "lifecycle" in sample.metadata:
        return
    for key in RESERVED:
        if key in sample.metadata and (key != "messages" or settings.record_messages):
            raise AssemblyError(f"metadata.{key}: set by the rollout; rename it, or reset_for_retry the sample")


def lifecycle(sample: Sample) -> list[dict[str, Any]]:
    """The generations that stand in the sample's metadata; AssemblyError for entries of another shape."""
    segments = sample.metadata.get("lifecycle", [])
    known = isinstance(segments, list) and all(
        isinstance(s, Mapping) and {"finish_reason", "span"} <= s.keys() and s["span"] is not None for s in segments
    )
    if not known:
        raise AssemblyError(f"metadata.lifecycle: {segments!r:.80} is no list of the sample's generations")
    return list(segments)


def joined(sample: Sample, fresh: Sample, *, mask_resumed: bool) -> Sample:
    """A copy of `sample` that goes on with `fresh`, whose prompt is all that `sample` holds.

    `mask_resumed`: what was sampled before is not trained on (miles' `mask_offpolicy_in_partial_rollout`).
    """
    out = copy.deepcopy(sample)
    before = sample.response_length
    out.tokens = fresh.tokens
    out.response_length = before + fresh.response_length
    mask = sample.loss_mask if sample.loss_mask is not None else [1] * before
    out.loss_mask = ([0] * before if mask_resumed else list(mask)) + (fresh.loss_mask or [])
    out.rollout_log_probs = list(sample.rollout_log_probs or []) + (fresh.rollout_log_probs or [])
    out.teacher_log_probs = out.opd_reverse_kl = None  # of the whole response, which is another one
    for name in REPLAY:
        setattr(out, name, _rows(name, getattr(sample, name) if before else None, getattr(fresh, name), fresh))
    out.weight_versions = sample.weight_versions + fresh.weight_versions
    out.spec_info = sample.spec_info + fresh.spec_info
    out.prefix_cache_info = sample.prefix_cache_info + fresh.prefix_cache_info
    out.status = fresh.status
    out.metadata = _metadata(sample, fresh)
    return out


def _rows(name: str, held: Rows | None, told: Rows | None, fresh: Sample) -> Rows | None:
    """Rows as reported when their ids were sampled: those held, then what the engine tells behind them."""
    if held is None or told is None:
        if held is not None and len(held) != len(fresh.tokens) - 1:
            raise AssemblyError(f"{name}: the engine tells none, though {len(held)} rows are held from before")
        return told if held is None else held.copy()
    return joined_rows([("those held from before", held), (name, told[len(held) :])])


def _metadata(sample: Sample, fresh: Sample) -> dict[str, Any]:
    earlier = lifecycle(sample)
    told = {key: value for key, value in sample.metadata.items() if key not in RESERVED or key == "messages"}
    merged = copy.deepcopy({**told, **fresh.metadata})
    later = [{**segment, "turn": segment["turn"] + len(earlier)} for segment in merged["lifecycle"]]
    merged["lifecycle"] = [*copy.deepcopy(earlier), *later]
    if dropped := added(sample.metadata.get("dropped", {}), fresh.metadata.get("dropped", {})):
        merged["dropped"] = dropped
    return merged


def added(a: Mapping[str, Mapping[str, int]], b: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """The sums of two `metadata["dropped"]`."""
    keys = [*a, *(reason for reason in b if reason not in a)]
    return {
        reason: {name: a.get(reason, {}).get(name, 0) + b.get(reason, {}).get(name, 0) for name in ("turns", "tokens")}
        for reason in keys
    }
