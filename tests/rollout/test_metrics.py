"""Figures: ratios of sums over generations, each once; left out without data."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.collect import collect
from miles_sim.rollout.counters import PrefixCacheInfo, SpecInfo
from miles_sim.rollout.metrics import compute_metrics
from miles_sim.rollout.sample import Sample, Status


def gather(forest: Any, settings: Any, rollout_id: int = 0, **options: Any) -> list[Sample]:
    options = {"max_seq_len": None, **options}
    samples = collect(
        forest.records, settings=settings, tokenizer=forest.tokenizer, agent_metadata=None, **options
    ).samples
    for sample in samples:
        sample.rollout_id = rollout_id
    return samples


@given(data=st.data())
def test_each_generation_of_a_rollout_counts_once(
    data: st.DataObject, forests: Callable[..., Any], settings: Any
) -> None:
    forest = forests(data.draw)
    nodes = [*forest.nodes, *forest.nodes]
    both = [sample for n in (0, 1) for sample in gather(forest, replace(settings, sample_picker="keep_all"), n)]
    metrics = compute_metrics(both)
    accepted, drafted, steps = (sum(node.counters[n] for node in nodes) for n in range(3))
    completion = sum(len(node.output) for node in nodes)
    expected: dict[str, float] = {
        "prefix_cache_hit_rate": sum(node.cached for node in nodes) / sum(len(node.record.prompt_ids) for node in nodes)
    }
    if drafted:
        expected["spec_accept_rate"] = accepted / drafted
    if steps:
        expected["spec_accept_length"] = completion / steps
    for name in ("prefix_cache_hit_rate", "spec_accept_rate", "spec_accept_length"):
        assert (name in metrics) == (name in expected)
        assert math.isclose(metrics.get(name, 0.0), expected.get(name, 0.0))


def test_generations_behind_a_cut_count_as_generated(forest: Any, settings: Any) -> None:
    first = forest.grow(counters=(0, 6, 2))
    forest.grow(first, counters=(6, 6, 2))
    (sample,) = gather(forest, settings, max_seq_len=len(first.record.prompt_ids) + 2)
    assert sample.spec_info.spec_draft_token_num == 6
    assert compute_metrics([sample])["spec_accept_rate"] == 0.5


def test_figures_without_data_are_left_out() -> None:
    metrics = compute_metrics([Sample(status=Status.ABORTED)])
    assert not any(name.startswith(("spec_", "prefix_", "weight_version", "dropped")) for name in metrics)
    assert metrics["aborted_ratio"] == 1.0
    assert compute_metrics([]) == {}


def test_ratios_are_pooled_not_averaged() -> None:
    long = Sample(spec_info=SpecInfo(90, 100, 10, 100), prefix_cache_info=PrefixCacheInfo(90, 100))
    short = Sample(spec_info=SpecInfo(0, 10, 10, 10), prefix_cache_info=PrefixCacheInfo(0, 10))
    metrics = compute_metrics([long, short, Sample()])
    assert metrics["spec_accept_rate"] == 90 / 110
    assert metrics["spec_accept_length"] == 110 / 20
    assert metrics["prefix_cache_hit_rate"] == 90 / 110
    assert metrics["avg_cached_tokens_per_sample"] == 30


def test_truncation_drops_and_agent_errors_show(forest: Any, settings: Any) -> None:
    first = forest.grow()
    second = forest.grow(first, finish="abort")
    third = forest.grow(second)
    (sample,) = gather(forest, settings)
    sample.metadata["agent_error"] = {"type": "KeyError", "message": ""}
    metrics = compute_metrics([sample, Sample(status=Status.TRUNCATED)])
    assert metrics["dropped/after_abort_tokens"] == len(third.output)
    assert metrics["agent_error_ratio"] == metrics["truncated_ratio"] == metrics["aborted_ratio"] == 0.5


@pytest.mark.parametrize(("versions", "oldest"), [(["default"], None), (["3", "4"], 3.0)])
def test_weight_versions_that_are_no_numbers_are_left_out(versions: list[str], oldest: float | None) -> None:
    metrics = compute_metrics([Sample(weight_versions=versions)])
    assert metrics.get("weight_version/min") == oldest
    assert metrics.get("weight_version/mixed_version_ratio", 1.0) == 1.0


@given(data=st.data())
def test_all_figures_are_finite(data: st.DataObject, forests: Callable[..., Any], settings: Any) -> None:
    metrics = compute_metrics(gather(forests(data.draw), settings))
    assert all(math.isfinite(value) for value in metrics.values())
    assert all(0 <= value <= 1 for name, value in metrics.items() if name.endswith(("ratio", "rate")))
