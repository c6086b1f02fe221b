"""Figures of a batch of samples. A figure without data is left out; a ratio is the ratio of its sums."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from miles_sim.rollout.batch import rollout_key
from miles_sim.rollout.counters import PrefixCacheInfo, SpecInfo
from miles_sim.rollout.sample import Sample, Status


def compute_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """Metric name (miles', where it has one) to a finite value.

    `spec_*` and `prefix_*` pool over generations, each once, however many leaves share it, those that a length
    limit dropped from a sample included.
    """
    if not samples:
        return {}
    spec, prefix = pooled_counters(samples)
    metrics: dict[str, float] = {
        **_summary("response_len", [sample.effective_response_length for sample in samples]),
        "truncated_ratio": _ratio(samples, Status.TRUNCATED),
        "aborted_ratio": _ratio(samples, Status.ABORTED),
        "agent_error_ratio": sum("agent_error" in sample.metadata for sample in samples) / len(samples),
        "tito_session_mismatch_rate": sum("tito_session_mismatch" in s.metadata for s in samples) / len(samples),
        **_weight_versions(samples),
        **_dropped(samples),
    }
    if spec.accept_rate is not None:
        metrics["spec_accept_rate"] = spec.accept_rate
    if spec.accept_length is not None:
        metrics["spec_accept_length"] = spec.accept_length
    if prefix.hit_rate is not None:
        metrics["prefix_cache_hit_rate"] = prefix.hit_rate
        metrics["avg_cached_tokens_per_sample"] = prefix.cached_tokens / len(samples)
    return metrics


def pooled_counters(samples: Sequence[Sample]) -> tuple[SpecInfo, PrefixCacheInfo]:
    """Counters over all generations behind `samples`, each once."""
    seen: set[Any] = set()
    spec, prefix = SpecInfo(), PrefixCacheInfo()
    for row, sample in enumerate(samples):
        for key, generation_spec, generation_prefix in _generations(sample):
            if key is not None and (place := (rollout_key(sample, row), key)) in seen:
                continue
            if key is not None:
                seen.add(place)
            spec += generation_spec
            prefix += generation_prefix
    return spec, prefix


def _generations(sample: Sample) -> Iterator[tuple[Any, SpecInfo, PrefixCacheInfo]]:
    """Key within its rollout, and counters, of each generation; a sample that does not tell counts as one, keyless."""
    segments = sample.metadata.get("lifecycle")
    if not isinstance(segments, list) or not all(isinstance(s, Mapping) and "node_id" in s for s in segments):
        yield None, sample.spec_info, sample.prefix_cache_info
        return
    for segment in segments:
        spec = SpecInfo.from_dict(segment["spec_info"])
        prefix = PrefixCacheInfo.from_dict(segment["prefix_cache_info"])
        yield (segment["node_id"], segment["response_id"]), spec, prefix


def _ratio(samples: Sequence[Sample], status: Status) -> float:
    return sum(sample.status is status for sample in samples) / len(samples)


def _summary(name: str, values: Sequence[float]) -> dict[str, float]:
    return {
        f"{name}/mean": statistics.fmean(values),
        f"{name}/median": float(statistics.median(values)),
        f"{name}/max": float(max(values)),
        f"{name}/min": float(min(values)),
    }


def _weight_versions(samples: Sequence[Sample]) -> dict[str, float]:
    oldest = [v for sample in samples if (v := sample.oldest_weight_version) is not None]
    if not oldest:
        return {}
    mixed = sum(len(set(sample.weight_versions)) > 1 for sample in samples) / len(samples)
    return {**_summary("weight_version", oldest), "weight_version/mixed_version_ratio": mixed}


def _dropped(samples: Sequence[Sample]) -> dict[str, float]:
    """Sampled ids that samples lack, by reason (`dropped/max_seq_len_tokens`, …); a shared one counts per sample."""
    totals: dict[str, float] = {}
    for sample in samples:
        for reason, counts in sorted(sample.metadata.get("dropped", {}).items()):
            name = f"dropped/{reason}_tokens"
            totals[name] = totals.get(name, 0.0) + counts["tokens"]
    return totals
