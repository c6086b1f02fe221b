"""Throughput: finite and never negative, whatever time the tools took."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.errors import SettingsError
from miles_sim.rollout.metrics_time import generated, throughput
from miles_sim.rollout.sample import Sample


def row(size: int, idle: float = 0.0, **fields: Any) -> Sample:
    return Sample(tokens=[1] * (size + 1), response_length=size, non_generation_time=idle, **fields)


rows = st.lists(st.tuples(st.integers(0, 50), st.floats(0, 100)), max_size=5)


@given(rows, st.sampled_from([0.0, 1e-9, 5.0, 30.0, 1e308]), st.none() | st.integers(1, 8))
def test_all_figures_are_finite_and_not_negative(drawn: Any, seconds: float, gpus: int | None) -> None:
    figures = throughput([row(size, idle) for size, idle in drawn], seconds, gpus=gpus)
    assert all(math.isfinite(value) and value >= 0 for value in figures.values())
    assert figures["rollout_time"] == seconds


def test_figures_are_miles() -> None:
    samples = [row(40, 2.0, loss_mask=[1] * 10 + [0] * 30, rollout_id=1), row(20, 2.0, rollout_id=1), row(4)]
    assert throughput(samples, 10.0, gpus=2) == {
        "rollout_time": 10.0,
        "non_generation_time/mean": 1.0,
        "non_generation_time/median": 1.0,
        "non_generation_time/max": 2.0,
        "non_generation_time/min": 0.0,
        "generated_tokens_per_gpu_per_sec": 1.7,
        "tokens_per_gpu_per_sec": 3.2,
        "longest_sample_tokens_per_sec": 4.0,
        "longest_sample_non_generation_time": 2.0,
        "longest_sample_tokens_per_sec_without_non_generation": 5.0,
        "effective_tokens_per_gpu_per_sec": 1.7,
        "longest_effective_sample_tokens_per_sec": 2.0,
        "longest_effective_sample_non_generation_time": 2.0,
        "longest_effective_sample_tokens_per_sec_without_non_generation": 2.5,
    }


@pytest.mark.parametrize("idle", [5.0, 30.0])
def test_tools_that_outlast_the_batch_leave_the_figure_out(idle: float) -> None:
    figures = throughput([row(10, idle)], 5.0)
    assert figures["longest_sample_non_generation_time"] == idle
    assert "longest_sample_tokens_per_sec_without_non_generation" not in figures


def test_tool_time_counts_once_a_rollout_and_rows_without_an_id_are_rollouts_of_their_own() -> None:
    samples = [row(1, 4.0, rollout_id=1), row(1, 4.0, rollout_id=1), row(1, 2.0), row(1, 3.0)]
    assert throughput(samples, 10.0)["non_generation_time/mean"] == 3.0


def test_generations_that_leaves_share_count_once() -> None:
    shared = {"node_id": 0, "response_id": "a", "sampled": 5, "span": None, "spec_info": {}, "prefix_cache_info": {}}
    own = {**shared, "node_id": 1, "response_id": "b", "sampled": 7}
    leaves = [row(5, rollout_id=1, metadata={"lifecycle": [shared]}), row(12, rollout_id=1)]
    leaves[1].metadata["lifecycle"] = [shared, own]
    assert generated(leaves) == 12
    assert generated([*leaves, row(4)]) == 16


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf, None, "1", True])
def test_what_is_no_time_is_refused_by_name(seconds: Any) -> None:
    with pytest.raises(SettingsError, match="seconds: "):
        throughput([row(1)], seconds)
    with pytest.raises(SettingsError, match="row 0: non_generation_time: "):
        throughput([row(1, seconds)], 1.0)


@pytest.mark.parametrize("gpus", [0, 1.5, True])
def test_gpus_are_a_whole_number(gpus: Any) -> None:
    with pytest.raises(SettingsError, match="gpus: "):
        throughput([row(1)], 1.0, gpus=gpus)
