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
from miles_sim.rollout.metrics import compute_metrics, segments
from miles_sim.rollout.metrics_time import generated
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


def test_an_aborted_row_moves_no_length(forest: Any, settings: Any) -> None:
    forest.grow(sampled=4)
    samples = gather(forest, settings)
    alone = compute_metrics(samples)
    beside = compute_metrics([*samples, Sample(index=9, status=Status.ABORTED, loss_mask=[])])
    names = [name for name in alone if name.startswith("response_len/")]
    assert len(names) == 4
    assert [beside[name] for name in names] == [alone[name] for name in names]


def session_sample(*kinds: str, **metadata: Any) -> Sample:
    entries = [{"type": kind} for kind in kinds]
    return Sample(metadata={"accumulated_token_ids": [], "tito_session_mismatch": entries, **metadata})


def test_mismatches_are_a_share_of_what_could_be_compared() -> None:
    """Neither an empty list, nor a rendering that failed, nor a sample without session is a mismatch."""
    drifted = session_sample("non_assistant_text")
    unchecked = session_sample("render_failed")
    clean = Sample(metadata={"accumulated_token_ids": [1]})
    metrics = compute_metrics([drifted, session_sample(), clean, unchecked, Sample()])
    assert metrics["tito_session_mismatch_rate"] == pytest.approx(1 / 3)
    assert metrics["tito_session_mismatch_rate/non_assistant_text"] == pytest.approx(1 / 3)
    assert metrics["tito_session_render_failed_ratio"] == 0.25
    assert not any(name.startswith("tito") for name in compute_metrics([Sample()]))
    assert "tito_session_mismatch_rate" not in compute_metrics([unchecked])


def test_a_mismatch_counts_where_the_ids_were_left_out_of_the_metadata() -> None:
    drifted = Sample(metadata={"tito_session_mismatch": [{"type": "non_assistant_text"}]})
    assert compute_metrics([drifted, Sample()])["tito_session_mismatch_rate"] == 1.0


def test_prompts_that_teach_nothing_are_told_by_the_reward_that_is_asked_for() -> None:
    rewards = [{"a": 1.0, "b": 0.0}, {"a": 1.0, "b": 0.5}]
    rows = [Sample(group_index=0, index=n, reward=reward) for n, reward in enumerate(rewards)]
    assert compute_metrics(rows, reward_key="a")["zero_std/count_1.0"] == 1.0
    assert "zero_std/count_1.0" not in compute_metrics(rows, reward_key="b")


def test_an_untouched_session_raises_no_alarm(forest: Any, settings: Any) -> None:
    first = forest.grow()
    forest.grow(first, role="tool")
    assert compute_metrics(gather(forest, settings))["tito_session_mismatch_rate"] == 0.0


def test_age_is_counted_from_the_oldest_version_of_each_sample() -> None:
    samples = [Sample(weight_versions=["3", "7"]), Sample(weight_versions=["6"]), Sample(weight_versions=["default"])]
    metrics = compute_metrics(samples, current_version=8)
    assert [metrics[f"weight_version/age/{name}"] for name in ("mean", "max", "min")] == [3.5, 5.0, 2.0]
    assert metrics["weight_version/mixed_version_ratio"] == pytest.approx(1 / 3)
    assert not any("/age/" in name for name in compute_metrics(samples))


def test_what_was_dropped_adds_up_by_reason() -> None:
    def lost(index: int, told: dict[str, int]) -> Sample:
        return Sample(index=index, metadata={"dropped": {name: {"turns": 1, "tokens": n} for name, n in told.items()}})

    metrics = compute_metrics([lost(0, {"max_seq_len": 3, "untold": 1}), lost(1, {"max_seq_len": 4})])
    assert {name: value for name, value in metrics.items() if name.startswith("dropped")} == {
        "dropped/max_seq_len_tokens": 7,
        "dropped/untold_tokens": 1,
    }


def test_ids_that_one_leaf_dropped_and_another_kept_are_not_lost(forest: Any, settings: Any) -> None:
    """`delimiter` trims the shared reply's stop token in one leaf; a leaf that ends there keeps it."""
    whole = {"node_id": 1, "response_id": "a", "sampled": 5, "span": [2, 7], "spec_info": {}, "prefix_cache_info": {}}
    cut = {**whole, "span": [2, 4], "dropped": "max_seq_len"}
    counts = {"max_seq_len": {"turns": 0, "tokens": 3}}
    kept = Sample(rollout_id=0, metadata={"lifecycle": [whole]})
    short = Sample(rollout_id=0, metadata={"lifecycle": [cut], "dropped": counts})
    assert not any(name.startswith("dropped") for name in compute_metrics([short, kept]))
    assert compute_metrics([short, short])["dropped/max_seq_len_tokens"] == 3
    assert compute_metrics([Sample(metadata={"dropped": counts})])["dropped/max_seq_len_tokens"] == 3
    other = Sample(rollout_id=1, metadata=short.metadata)
    assert compute_metrics([short, other])["dropped/max_seq_len_tokens"] == 6


@pytest.mark.parametrize("rows", [[], [Sample(status=Status.ABORTED)] * 3, [Sample(status=Status.FAILED)]])
def test_batches_of_nothing_give_finite_figures(rows: list[Sample]) -> None:
    metrics = compute_metrics(rows, reward_key="a", current_version=3)
    assert all(math.isfinite(value) for value in metrics.values())
    assert not any(name.startswith(("response_len", "zero_std", "spec", "prefix")) for name in metrics)


@pytest.mark.parametrize("missing", ["node_id", "response_id", "sampled", "span", "spec_info", "prefix_cache_info"])
def test_a_lifecycle_that_is_not_ours_tells_nothing_of_generations(missing: str) -> None:
    ours = {"node_id": 1, "response_id": "a", "sampled": 5, "span": [2, 7], "spec_info": {}, "prefix_cache_info": {}}
    theirs = {key: value for key, value in ours.items() if key != missing}
    plain = Sample(index=0, tokens=[1, 2], response_length=1, spec_info=SpecInfo(2, 6, 2, 5))
    foreign = replace(plain, metadata={"lifecycle": [theirs]})
    assert segments(replace(plain, metadata={"lifecycle": [ours]})) == [ours]
    assert segments(foreign) is None
    assert compute_metrics([foreign]) == compute_metrics([plain])
    assert generated([foreign]) == 1
