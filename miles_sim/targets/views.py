"""Samples of any implementation as observation data. Standard library only: adapters use it in their interpreters."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from .base import SAMPLE_FIELDS
from .plain import plain, scrubbed, shared_objects
from .worker import error_document

_SPEC_FIELDS = {
    "spec_accept_token_num": "spec_num_correct_drafts",
    "spec_draft_token_num": "spec_num_proposed_drafts",
    "spec_verify_ct": "spec_verify_ct",
    "completion_token_num": "completion_tokens",
}
"""A counter to its other name: miles' PR 2598 calls them as the engine does."""
_CACHE_FIELDS = ("cached_tokens", "total_prompt_tokens")
_ENTRIES: dict[str, Any] = {
    "tokens": (int,),
    "loss_mask": (int,),
    "rollout_log_probs": (int, float),
    "weight_versions": (str,),
}
"""Fields that are lists, to what they hold; one that holds anything else is shown among a sample's further fields."""
_YEAR_2001 = 1e9
"""Unix seconds."""


def sample_view(sample: Any) -> dict[str, Any]:
    """A `SampleView` document of a sample dataclass with miles' field names."""
    values = {name: getattr(sample, name) for name in _names(sample.__class__)}
    spec, cache = values.pop("spec_info", None), values.pop("prefix_cache_info", None)
    view = {name: plain(value) for name, value in values.items() if name in SAMPLE_FIELDS}
    view["spec_info"] = None if spec is None else _counters(spec)
    view["prefix_cache_info"] = None if cache is None else {name: getattr(cache, name) for name in _CACHE_FIELDS}
    strange = {name: plain(view[name]) for name in view if not _fits(name, view[name])}
    view = {name: value for name, value in view.items() if name not in strange}
    if "lifecycle" in view.get("metadata", {}):
        view["metadata"] = {**view["metadata"], "lifecycle": _timeless(view["metadata"]["lifecycle"])}
    further = {name: plain(value) for name, value in values.items() if name not in SAMPLE_FIELDS and value is not None}
    view["other"] = {**further, **strange}
    return view


@lru_cache(maxsize=16)
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _fits(name: str, value: Any) -> bool:
    """Whether a list or counters hold what their field is for; what an engine said amiss may stand there as it came."""
    if name in ("spec_info", "prefix_cache_info") and isinstance(value, Mapping):
        return all(isinstance(value[field], int) for field in value if not field.startswith("accept_"))
    kinds = _ENTRIES.get(name)
    if kinds is None or value is None or set(kinds).issuperset(map(type, value)):
        return True
    return all(isinstance(entry, kinds) for entry in value)


def _timeless(value: Any) -> Any:
    """Unix times become None: they are the one thing in a sample that two equal plays do not have in common."""
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_timeless(item) for item in value]
    return None if isinstance(value, float) and value > _YEAR_2001 else value


def _counters(spec: Any) -> dict[str, Any]:
    """The four counters, and the ratios as the target itself states them, each under either spelling."""
    counters = {name: getattr(spec, name if hasattr(spec, name) else other) for name, other in _SPEC_FIELDS.items()}
    for ratio in ("accept_rate", "accept_length"):
        counters[ratio] = getattr(spec, f"spec_{ratio}", None) if not hasattr(spec, ratio) else getattr(spec, ratio)
    return counters


def rollout_view(
    before: Mapping[str, Any],
    sample: Any,
    returned: Any,
    *,
    agent_ran: bool,
    error: BaseException | None = None,
    session_metadata: Any = None,
    payload: str | None = None,
) -> dict[str, Any]:
    """A `RolloutView` document. `before`: the input's view as it stood; `sample`: the input; `returned`: its output."""
    samples = samples_of(returned)
    owners = {"input": sample, **{str(number): item for number, item in enumerate(samples)}}
    return {
        "input": dict(before),
        "input_after": sample_view(sample),
        "agent_ran": agent_ran,
        "error": None if error is None else scrubbed(error_document(error)),
        "returned": None if error is not None else "list" if isinstance(returned, list) else "single",
        "samples": [sample_view(item) for item in samples],
        "shared_objects": shared_objects(owners) if samples else [],
        "session_metadata": plain(session_metadata),
        "payload": payload,
    }


def samples_of(returned: Any) -> list[Any]:
    """What `generate` returned as a list: of one, of several, of none."""
    if returned is None:
        return []
    return list(returned) if isinstance(returned, list) else [returned]


def groups_of(returned: Sequence[Any]) -> list[list[Any]]:
    """The nested batch as the trainer gathers it: per prompt group, per rollout what `generate` returned.

    Rollouts that returned nothing are left out; neighbours with the same `group_index` form a group, a rollout
    without one is a group of its own.
    """
    there = [item for item in returned if samples_of(item)]
    groups = itertools.groupby(enumerate(there), key=_group_key)
    return [[item for _, item in group] for _, group in groups]


def _group_key(numbered: tuple[int, Any]) -> tuple[str, int]:
    number, item = numbered
    index = samples_of(item)[0].group_index
    return ("none", number) if index is None else ("group", index)


def give_rewards(groups: Sequence[Sequence[Any]], rewards: str) -> None:
    """The reward model that `Job` tells of: by `rollout`, or by `sample`."""
    for item in itertools.chain.from_iterable(groups):
        for number, sample in enumerate(samples_of(item), start=1):
            if sample.status.value == "aborted":
                continue
            if rewards == "sample":
                sample.reward = 1.0 / number
            elif sample.reward is None:
                sample.reward = sample.metadata.get("reward", 0.0)


def train_columns(data: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of train data as plain data."""
    return {name: plain(value) for name, value in data.items()}


def figures(metrics: Mapping[str, Any], prefix: str = "rollout/") -> dict[str, float]:
    """Metrics that are numbers, under the prefix that miles logs them with."""
    numbers = {name: plain(value) for name, value in metrics.items()}
    return {
        name if name.startswith(prefix) else prefix + name: float(value)
        for name, value in numbers.items()
        if isinstance(value, int | float)
    }
