"""Turns of one conversation, each a sample of its own, become one: miles' `merge_samples` at linear cost."""

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from miles_sim.rollout.counters import PrefixCacheInfo, SpecInfo
from miles_sim.rollout.errors import AssemblyError
from miles_sim.rollout.replay import joined_rows
from miles_sim.rollout.sample import REPLAY, Rows, Sample, Status
from miles_sim.tokenizer import ChatTokenizer

SHARED = """
group_index index rollout_id multimodal_inputs multimodal_train_inputs label reward remove_sample
generate_function_path train_metadata adapter reward_spec routing_key non_generation_time
""".split()  # noqa: SIM905 - as short words they can be read
"""Fields in which all turns must agree."""

TOP_LOGPROBS = "opd_student_top_logprobs"
"""Metadata that holds one entry a response id."""

_OWN_METADATA = (TOP_LOGPROBS, "lifecycle", "messages")


def merge_samples(samples: Sequence[Sample], tokenizer: ChatTokenizer) -> Sample:
    """One sample of the turns `samples`, of which each one's ids begin with those of the one before.

    The outcome of miles' pairwise fold: ids between two responses are masked, with logprob 0.0; counters and
    weight versions add up; a turn that is not completed, or after which replay rows are missing, ends the sample.
    Unlike there, what that leaves out is counted in `metadata["dropped"]`, and rows of sampled ids stay those of
    their own turn. Shares nothing with the inputs. AssemblyError for turns that do not continue one another.
    """
    if not samples:
        raise AssemblyError("samples: empty; at least one turn is needed")
    for number, sample in enumerate(samples):
        if not isinstance(sample, Sample):
            raise AssemblyError(f"samples[{number}]: {type(sample).__name__} is not a Sample")
    kept, reason = _usable(samples)
    for sample in kept:
        sample.validate()
    if len(kept) == 1:
        merged = copy.deepcopy(kept[0])
    else:
        known = 0
        for number in range(1, len(kept)):
            known = _check_pair(kept, number, known)
        merged = _merge(kept, tokenizer)
    if reason is not None:
        left = samples[len(kept) :]
        tokens = sum(turn.effective_response_length for turn in left)
        merged.metadata = {**merged.metadata, "dropped": {reason: {"turns": len(left), "tokens": tokens}}}
    return merged


def _usable(samples: Sequence[Sample]) -> tuple[Sequence[Sample], str | None]:
    """The turns that can be merged, and why not those after them."""
    for number in range(1, len(samples)):
        before, turn = samples[number - 1], samples[number]
        if before.status is not Status.COMPLETED:
            return samples[:number], f"after_{before.status.value}"
        if any(getattr(turn, name) is None and getattr(before, name) is not None for name in REPLAY):
            return samples[:number], "replay_gap"
    return samples, None


def _check_pair(turns: Sequence[Sample], number: int, known: int) -> int:
    """Check that a turn continues the one before it; returns where the latter's own ids end.

    Compared are the ids which the one before added, with this turn's and the last one's: linear over all pairs.
    """
    before, turn, last = turns[number - 1], turns[number], turns[-1]
    for name in SHARED:
        a, b = getattr(before, name), getattr(turn, name)
        if a is not b and not _equal(a, b):
            raise AssemblyError(f"{name}: {b!r} of turn {number} differs from {a!r} of the turn before")
    end = len(before.tokens)
    own = before.tokens[known:]
    if turn.tokens[known:end] != own or last.tokens[known:end] != own:
        raise AssemblyError(f"tokens: turn {number} does not begin with the ids of the turn before")
    if len(turn.tokens) - turn.response_length <= end:
        raise AssemblyError(f"tokens: turn {number} has no id between the two responses")
    _check_prompt(before.prompt, turn.prompt, number)
    if not _equal(_plain(before), _plain(turn)):
        raise AssemblyError(f"metadata: {_plain(turn)!r} of turn {number} differs from {_plain(before)!r}")
    return end


def _check_prompt(before: Any, prompt: Any, number: int) -> None:
    if type(before) is not type(prompt) or prompt[: len(before)] != before:
        raise AssemblyError(f"prompt: turn {number}'s does not begin with that of the turn before")


def _plain(sample: Sample) -> dict[str, Any]:
    return {key: value for key, value in (sample.metadata or {}).items() if key not in _OWN_METADATA}


def _equal(a: Any, b: Any) -> bool:
    """Equality that looks into containers for arrays, whose own `==` is no truth value."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b))
    return bool(a == b)


def _merge(turns: Sequence[Sample], tokenizer: ChatTokenizer) -> Sample:
    first, last = turns[0], turns[-1]
    begin = len(first.tokens) - first.response_length
    gaps = [0] + [len(turn.tokens) - turn.response_length - len(before.tokens) for before, turn in pairwise(turns)]
    texts = []
    for turn, gap in zip(turns, gaps, strict=True):
        at = len(turn.tokens) - turn.response_length
        texts += [tokenizer.decode(last.tokens[at - gap : at]) if gap else "", turn.response]
    merged = Sample(**{name: copy.deepcopy(getattr(first, name)) for name in SHARED})
    merged.prompt = copy.deepcopy(last.prompt)
    merged.tokens = list(last.tokens)
    merged.response = "".join(texts)
    merged.response_length = len(last.tokens) - begin
    merged.status = last.status
    merged.loss_mask = _spread([turn.loss_mask for turn in turns], turns, gaps, 0, missing=1)
    merged.rollout_log_probs = _spread([turn.rollout_log_probs for turn in turns], turns, gaps, 0.0)
    for name in ("teacher_log_probs", "opd_reverse_kl"):
        values = [getattr(turn, name) for turn in turns]
        if any(value is not None for value in values):
            setattr(merged, name, _spread(values, turns, gaps, 0.0))
    for name in REPLAY:
        setattr(merged, name, _rows(turns, name))
    merged.weight_versions = [version for turn in turns for version in turn.weight_versions]
    merged.spec_info = sum((turn.spec_info for turn in turns), SpecInfo())
    merged.prefix_cache_info = sum((turn.prefix_cache_info for turn in turns), PrefixCacheInfo())
    merged.metadata = _metadata(turns, gaps)
    return merged


def _spread(
    values: Sequence[Any], turns: Sequence[Sample], gaps: Sequence[int], fill: float, missing: float | None = None
) -> list[Any]:
    """Per-id values of all turns in a row, `fill` between them; a turn without them counts as all `missing`."""
    joined: list[Any] = []
    for value, turn, gap in zip(values, turns, gaps, strict=True):
        joined += [fill] * gap
        joined += [fill if missing is None else missing] * turn.response_length if value is None else value
    return joined


def _rows(turns: Sequence[Sample], name: str) -> Rows | None:
    """Each turn's own rows: from the last id before it on. Turns before the first with rows take that one's."""
    parts: list[tuple[str, Rows]] = []
    begin = 0
    for number, turn in enumerate(turns):
        rows = getattr(turn, name)
        if rows is not None:
            parts.append((f"{name} of turn {number}", rows[begin:]))
            begin = len(rows)
    return joined_rows(parts) if parts else None


def _metadata(turns: Sequence[Sample], gaps: Sequence[int]) -> dict[str, Any]:
    merged = copy.deepcopy(_plain(turns[0]))
    tops = [(turn.metadata or {}).get(TOP_LOGPROBS) for turn in turns]
    if any(top is not None for top in tops):
        merged[TOP_LOGPROBS] = _top_logprobs(tops, turns, gaps)
    segments = [segment for turn in turns for segment in _as_list((turn.metadata or {}).get("lifecycle"))]
    if segments:
        merged["lifecycle"] = copy.deepcopy(segments)
    messages = [turn.metadata["messages"] for turn in turns if (turn.metadata or {}).get("messages")]
    if messages:
        merged["messages"] = copy.deepcopy(messages[-1])
    return merged


def _top_logprobs(tops: Sequence[Any], turns: Sequence[Sample], gaps: Sequence[int]) -> list[Any]:
    joined: list[Any] = []
    for number, (top, turn, gap) in enumerate(zip(tops, turns, gaps, strict=True)):
        if top is None or len(top) != turn.response_length:
            found = "missing" if top is None else f"{len(top)} entries"
            raise AssemblyError(
                f"metadata.{TOP_LOGPROBS}: {found} in turn {number}, response_length {turn.response_length}"
            )
        joined += [[] for _ in range(gap)]
        joined += copy.deepcopy(top)
    return joined


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
