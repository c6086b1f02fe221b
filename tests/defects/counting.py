"""Counters that are lost, misread or counted twice."""

from collections.abc import Iterator
from typing import Any

import pytest

from miles_sim.rollout import counters, metrics, sample, wire
from miles_sim.rollout.counters import PrefixCacheInfo, SpecInfo
from miles_sim.rollout.sample import Sample
from miles_sim.targets import reference_batch

from .defect import defect


@defect("linear/v2", "counters/collected-when-on", "wire/every-computed-field-crosses")
def the_session_path_counts_nothing(m: pytest.MonkeyPatch) -> None:
    """miles before PR #2028."""
    m.setattr(sample, "generation_counters", lambda meta, settings: (SpecInfo(), counters.read_prefix_cache(meta)))


@defect("linear/v2", "counters/collected-when-on", "wire/every-computed-field-crosses")
def counters_stay_on_the_server(m: pytest.MonkeyPatch) -> None:
    """miles of August 2026: the wire's table has no spec_info."""
    set_json = wire._set_json
    m.setattr(wire, "_set_json", lambda s, name, *rest: None if name == "spec_info" else set_json(s, name, *rest))


@defect("linear/v2", "counters/reaches-driver")
def verify_steps_stay_on_the_server(m: pytest.MonkeyPatch) -> None:
    """A field list of the counters that misses one of them."""
    from_dict = SpecInfo.from_dict
    m.setattr(SpecInfo, "from_dict", lambda data: from_dict({**data, "spec_verify_ct": 0}))


@defect("linear/v2", "counters/renamed-keys-read")
def retired_keys_are_read(m: pytest.MonkeyPatch) -> None:
    """miles reads names that SGLang dropped in 0.5.11."""
    m.setattr(counters, "SPELLINGS", counters.SPELLINGS[-1:])


@defect("speculative-no-step/v2", "counters/accept-rate-honest", "counters/accept-length-true")
def nothing_counted_is_zero(m: pytest.MonkeyPatch) -> None:
    """miles SpecInfo: a ratio without a divisor is 0.0."""
    m.setattr(SpecInfo, "accept_rate", 0.0)
    m.setattr(SpecInfo, "accept_length", 0.0)


@defect("speculative-off/v2", "counters/absent-when-off")
def counted_without_being_asked(m: pytest.MonkeyPatch) -> None:
    """completion_tokens is always there, so counters are never quite zero."""

    def always(meta: Any, settings: Any) -> tuple[SpecInfo, PrefixCacheInfo]:
        return counters.read_spec(meta), counters.read_prefix_cache(meta)

    m.setattr(sample, "generation_counters", always)


@defect("speculative-no-step/v2", "counters/missing-keys-tolerated")
def a_reply_without_keys_is_not_counted(m: pytest.MonkeyPatch) -> None:
    """Counting begins only where all keys are there."""
    read = counters.read_spec
    m.setattr(sample, "read_spec", lambda meta: read(meta) if "spec_verify_ct" in meta else SpecInfo())


@defect(
    "speculative-off/v1",
    "counters/absent-setting-tolerated",
    "session/ends-in-samples",
    crash="a setting that is read and not there raises before any datum is made",
)
def an_absent_setting_is_read(m: pytest.MonkeyPatch) -> None:
    """miles PR #2028: a namespace without the attribute fails every rollout."""

    def read(meta: Any, settings: Any) -> Any:
        raise AttributeError("sglang_speculative_algorithm")

    m.setattr(sample, "generation_counters", read)


@defect("linear/v2", "counters/merge-sums")
def the_last_turn_counts_alone(m: pytest.MonkeyPatch) -> None:
    """A merge that takes the later side's counters."""
    m.setattr(SpecInfo, "__add__", lambda self, other: other)


@defect("speculative-shared-node/v2", "counters/counted-once-across-siblings", "counters/prefix-cache-counted-once")
def shared_turns_count_once_a_leaf(m: pytest.MonkeyPatch) -> None:
    """miles metrics: sums over samples, though samples share generations."""

    def per_leaf(sample: Sample) -> Iterator[tuple[None, SpecInfo, PrefixCacheInfo]]:
        yield None, sample.spec_info, sample.prefix_cache_info

    m.setattr(metrics, "_generations", per_leaf)


@defect("linear/v2", "counters/prefix-cache-true")
def prompts_are_counted_without_the_cache(m: pytest.MonkeyPatch) -> None:
    """The cached count is looked for under another name."""
    read = counters.read_prefix_cache
    m.setattr(sample, "read_prefix_cache", lambda meta: PrefixCacheInfo(0, read(meta).total_prompt_tokens))


@defect("weight-version/v2", "counters/weight-versions-in-order", "wire/every-computed-field-crosses")
def weight_versions_are_forgotten(m: pytest.MonkeyPatch) -> None:
    """A version that is no number is passed over."""
    m.setattr(sample, "weight_versions", lambda meta: [])


@defect("speculative-shared-node/v2", "counters/counted-once-across-siblings")
def ratios_are_averaged(m: pytest.MonkeyPatch) -> None:
    """miles metrics: the mean of the samples' rates, though one is long and another short."""
    right = reference_batch.compute_metrics

    def averaged(samples: Any, **keywords: Any) -> dict[str, float]:
        rates = [sample.spec_info.accept_rate or 0.0 for sample in samples]
        return {**right(samples, **keywords), "spec_accept_rate": sum(rates) / len(rates)}

    m.setattr(reference_batch, "compute_metrics", averaged)


@defect("linear/v2", "counters/counted-once-across-siblings", "counters/prefix-cache-counted-once")
def counters_are_in_no_log(m: pytest.MonkeyPatch) -> None:
    """miles PR #623: a refactoring left the helpers uncalled, for seven weeks."""
    m.setattr(reference_batch, "compute_metrics", lambda samples, **keywords: {})
