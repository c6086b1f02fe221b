"""Throughput of a batch. Time that tools took is told apart, and never makes a figure negative or infinite."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from miles_sim.rollout.batch import rollout_key
from miles_sim.rollout.errors import SettingsError
from miles_sim.rollout.metrics import segments, summary
from miles_sim.rollout.sample import Sample


def throughput(samples: Sequence[Sample], seconds: float, *, gpus: int | None = None) -> dict[str, float]:
    """Ids a second, under miles' names, of a batch that took `seconds`; figures that would divide by 0 are left out.

    `tokens_per_gpu_per_sec` and `longest_sample_*`: response ids, observations included; `effective_*`: trainable
    ids; `generated_*`: sampled ones, those that leaves share once. `…_without_non_generation`: over the time that the
    longest samples' tools left, where they left any. `non_generation_time`: seconds of tools, by rollout.
    SettingsError for a time that is no number of seconds.
    """
    _check(samples, seconds, gpus)
    figures = {"rollout_time": float(seconds), **_tool_time(samples)}
    if not samples or not seconds:
        return figures
    if gpus is not None:
        figures["generated_tokens_per_gpu_per_sec"] = generated(samples) / seconds / gpus
    for key, lengths in (
        ("", [sample.response_length for sample in samples]),
        ("effective_", [sample.effective_response_length for sample in samples]),
    ):
        if gpus is not None:
            figures[f"{key}tokens_per_gpu_per_sec"] = sum(lengths) / seconds / gpus
        longest = max(lengths)
        figures[f"longest_{key}sample_tokens_per_sec"] = longest / seconds
        if any(sample.non_generation_time for sample in samples):
            own = [s.non_generation_time for s, length in zip(samples, lengths, strict=True) if length == longest]
            idle = math.fsum(own) / len(own)
            figures[f"longest_{key}sample_non_generation_time"] = idle
            if idle < seconds:
                figures[f"longest_{key}sample_tokens_per_sec_without_non_generation"] = longest / (seconds - idle)
    return {name: value for name, value in figures.items() if math.isfinite(value)}


def generated(samples: Sequence[Sample]) -> int:
    """Sampled ids behind `samples`, dropped ones included, each generation's once."""
    counts: dict[Any, int] = {}
    for row, sample in enumerate(samples):
        told = segments(sample)
        if told is None:
            counts[row] = sample.effective_response_length
            continue
        for segment in told:
            counts[rollout_key(sample, row), segment["node_id"], segment["response_id"]] = segment["sampled"]
    return sum(counts.values())


def _tool_time(samples: Sequence[Sample]) -> Mapping[str, float]:
    by_rollout = {rollout_key(sample, row): sample.non_generation_time for row, sample in enumerate(samples)}
    return summary("non_generation_time", list(by_rollout.values())) if any(by_rollout.values()) else {}


def _check(samples: Sequence[Sample], seconds: float, gpus: int | None) -> None:
    times = {"seconds": seconds}
    times |= {f"row {row}: non_generation_time": sample.non_generation_time for row, sample in enumerate(samples)}
    for name, value in times.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise SettingsError(f"{name}: {value!r} is not a finite number of seconds of at least 0")
    if gpus is not None and (type(gpus) is not int or gpus < 1):
        raise SettingsError(f"gpus: {gpus!r} is not a whole number of at least 1")
