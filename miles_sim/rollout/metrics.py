"""Figures of a batch of samples. A figure without data is left out; a ratio is the ratio of its sums."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from miles_sim.rollout.batch import rollout_key
from miles_sim.rollout.counters import PrefixCacheInfo, SpecInfo
from miles_sim.rollout.metrics_rewards import zero_std
from miles_sim.rollout.sample import Sample, Status

_READ = frozenset({"node_id", "response_id", "sampled", "span", "spec_info", "prefix_cache_info"})
"""What is read of each entry of a sample's `lifecycle`."""
CANNOT_TELL = "render_failed"
"""Kind of a `tito_session_mismatch` entry that says nothing about the ids."""


def compute_metrics(
    samples: Sequence[Sample], *, reward_key: str | None = None, current_version: int | None = None
) -> dict[str, float]:
    """Metric name (miles', where it has one) to a finite value; nothing for an empty batch.

    `spec_*` and `prefix_*` pool over generations, each once, however many leaves share it, those that a length
    limit dropped from a sample included. `response_len` leaves out what generated nothing. `current_version`: the
    trainer's weight version, for `weight_version/age`.
    """
    if not samples:
        return {}
    spec, prefix = pooled_counters(samples)
    metrics: dict[str, float] = {
        **summary("response_len", [s.effective_response_length for s in samples if s.response_length]),
        "truncated_ratio": _ratio(samples, Status.TRUNCATED),
        "aborted_ratio": _ratio(samples, Status.ABORTED),
        "agent_error_ratio": sum("agent_error" in sample.metadata for sample in samples) / len(samples),
        **zero_std(samples, reward_key),
        **_mismatches(samples),
        **_weight_versions(samples, current_version),
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


def summary(name: str, values: Sequence[float]) -> dict[str, float]:
    """`name/mean`, `/median`, `/max`, `/min`; nothing without values."""
    if not values:
        return {}
    return {
        f"{name}/mean": statistics.fmean(values),
        f"{name}/median": float(statistics.median(values)),
        f"{name}/max": float(max(values)),
        f"{name}/min": float(min(values)),
    }


def segments(sample: Sample) -> list[Mapping[str, Any]] | None:
    """The generations that `metadata["lifecycle"]` tells of; None where it is not ours."""
    found = sample.metadata.get("lifecycle")
    if isinstance(found, list) and all(isinstance(s, Mapping) and s.keys() >= _READ for s in found):
        return found
    return None


def _generations(sample: Sample) -> Iterator[tuple[Any, SpecInfo, PrefixCacheInfo]]:
    """Key within its rollout, and counters, of each generation; a sample that does not tell counts as one, keyless."""
    told = segments(sample)
    if told is None:
        yield None, sample.spec_info, sample.prefix_cache_info
        return
    for segment in told:
        spec = SpecInfo.from_dict(segment["spec_info"])
        prefix = PrefixCacheInfo.from_dict(segment["prefix_cache_info"])
        yield (segment["node_id"], segment["response_id"]), spec, prefix


def _ratio(samples: Sequence[Sample], status: Status) -> float:
    return sum(sample.status is status for sample in samples) / len(samples)


def _mismatches(samples: Sequence[Sample]) -> dict[str, float]:
    """Share of the samples with a template mismatch among those of a session that could be compared, and by kind."""
    kinds = [
        {str(entry.get("type")) for entry in sample.metadata.get("tito_session_mismatch") or []}
        for sample in samples
        if "accumulated_token_ids" in sample.metadata or "tito_session_mismatch" in sample.metadata
    ]
    told = [own for own in kinds if CANNOT_TELL not in own]
    rates = {}
    if told:
        rates["tito_session_mismatch_rate"] = sum(map(bool, told)) / len(told)
        for kind in sorted(set().union(*told)):
            rates[f"tito_session_mismatch_rate/{kind}"] = sum(kind in own for own in told) / len(told)
    if len(told) < len(kinds):
        rates[f"tito_session_{CANNOT_TELL}_ratio"] = 1 - len(told) / len(kinds)
    return rates


def _weight_versions(samples: Sequence[Sample], current: int | None) -> dict[str, float]:
    oldest = [v for sample in samples if (v := sample.oldest_weight_version) is not None]
    if not oldest:
        return {}
    mixed = sum(len(set(sample.weight_versions)) > 1 for sample in samples) / len(samples)
    ages = {} if current is None else summary("weight_version/age", [current - version for version in oldest])
    return {**summary("weight_version", oldest), **ages, "weight_version/mixed_version_ratio": mixed}


def _dropped(samples: Sequence[Sample]) -> dict[str, float]:
    """Sampled ids that stand in no sample, by reason (`dropped/max_seq_len_tokens`, …), those of a generation once."""
    most: dict[Any, tuple[int, int, str | None]] = {}
    totals: dict[str, float] = {}
    for row, sample in enumerate(samples):
        told = segments(sample) or []
        for segment in told:
            span = segment["span"]
            key = (rollout_key(sample, row), segment["node_id"], segment["response_id"])
            kept = 0 if span is None else span[1] - span[0]
            if key not in most or kept > most[key][0]:
                most[key] = (kept, segment["sampled"], segment.get("dropped"))
        known = {segment.get("dropped") for segment in told}
        for reason, counts in sample.metadata.get("dropped", {}).items():
            if reason not in known:
                totals[reason] = totals.get(reason, 0.0) + counts["tokens"]
    for kept, sampled, reason in most.values():
        if reason is not None:
            totals[reason] = totals.get(reason, 0.0) + sampled - kept
    return {f"dropped/{reason}_tokens": totals[reason] for reason in sorted(totals)}
