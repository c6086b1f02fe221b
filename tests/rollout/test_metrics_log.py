"""Figures as they are logged: under miles' names, with each data set's own number of rollouts."""

import math
from typing import Any

import pytest

from miles_sim.rollout.counters import PrefixCacheInfo, SpecInfo
from miles_sim.rollout.metrics_log import EvalSet, eval_metrics, train_metrics
from miles_sim.rollout.sample import Sample, Status


def row(index: int, reward: Any = 1.0, group: int = 0, **fields: Any) -> Sample:
    values = {"tokens": [1, 2, 3], "response_length": 2, "status": Status.COMPLETED}
    return Sample(index=index, rollout_id=index, group_index=group, reward=reward, **{**values, **fields})


def placeholder(index: int) -> Sample:
    return Sample(index=index, group_index=0, status=Status.ABORTED)


def test_names_of_a_training_rollout() -> None:
    """The list that dashboards are built on: a name that goes missing is noticed here."""
    told = {"spec_info": SpecInfo(1, 2, 3, 4), "prefix_cache_info": PrefixCacheInfo(1, 2), "weight_versions": ["1"]}
    rows = [row(0, **told), row(1, non_generation_time=1.0, metadata={"accumulated_token_ids": []})]
    assert sorted(train_metrics(rows, seconds=2.0, gpus=1, n=2, current_version=2)) == [
        "passrate/pass@1",
        "passrate/pass@2",
        "perf/effective_tokens_per_gpu_per_sec",
        "perf/generated_tokens_per_gpu_per_sec",
        "perf/longest_effective_sample_non_generation_time",
        "perf/longest_effective_sample_tokens_per_sec",
        "perf/longest_effective_sample_tokens_per_sec_without_non_generation",
        "perf/longest_sample_non_generation_time",
        "perf/longest_sample_tokens_per_sec",
        "perf/longest_sample_tokens_per_sec_without_non_generation",
        "perf/non_generation_time/max",
        "perf/non_generation_time/mean",
        "perf/non_generation_time/median",
        "perf/non_generation_time/min",
        "perf/rollout_time",
        "perf/tokens_per_gpu_per_sec",
        "rollout/aborted_ratio",
        "rollout/agent_error_ratio",
        "rollout/avg_cached_tokens_per_sample",
        "rollout/prefix_cache_hit_rate",
        "rollout/response_len/max",
        "rollout/response_len/mean",
        "rollout/response_len/median",
        "rollout/response_len/min",
        "rollout/spec_accept_length",
        "rollout/spec_accept_rate",
        "rollout/tito_session_mismatch_rate",
        "rollout/truncated_ratio",
        "rollout/weight_version/age/max",
        "rollout/weight_version/age/mean",
        "rollout/weight_version/age/median",
        "rollout/weight_version/age/min",
        "rollout/weight_version/max",
        "rollout/weight_version/mean",
        "rollout/weight_version/median",
        "rollout/weight_version/min",
        "rollout/weight_version/mixed_version_ratio",
        "rollout/zero_std/all_one_percentage",
        "rollout/zero_std/all_zero_percentage",
        "rollout/zero_std/count_1.0",
    ]


@pytest.mark.parametrize("rows", [[], [placeholder(n) for n in range(2)], [placeholder(0), row(1)]])
@pytest.mark.parametrize("key", [None, "score"])
def test_aborted_and_empty_batches_are_logged(rows: list[Sample], key: str | None) -> None:
    figures = train_metrics(rows, seconds=0.0, gpus=2, n=2, reward_key=key, current_version=1)
    figures |= eval_metrics({"set": EvalSet(rows, n=2, reward_key=key)})
    assert all(math.isfinite(value) for value in figures.values())
    assert ("eval/set" in figures) == (key is None and any(sample.reward is not None for sample in rows))


def test_each_data_set_has_its_own_number_of_rollouts() -> None:
    four = [row(n, float(n == 0)) for n in range(4)]
    two = [row(n, float(n == 0)) for n in range(2)]
    figures = eval_metrics({"a": EvalSet(four, n=4), "b": EvalSet(two, n=2), "c": EvalSet([row(0, 0.25)])})
    rates = {name: value for name, value in figures.items() if "pass@" in name}
    assert rates == {
        "eval/a-pass@1": 0.25, "eval/a-pass@2": 0.5, "eval/a-pass@4": 1.0, "eval/b-pass@1": 0.5, "eval/b-pass@2": 1.0
    }  # fmt: skip
    assert (figures["eval/a"], figures["eval/b"], figures["eval/c"]) == (0.25, 0.5, 0.25)


def test_rollouts_without_reward_are_told_and_leave_the_mean_alone() -> None:
    rows = [row(0, 1.0), row(0, 1.0), row(1, 0.0), placeholder(2), placeholder(3)]
    figures = eval_metrics({"set": EvalSet(rows)})
    assert (figures["eval/set"], figures["eval/set-none_reward_ratio"]) == (0.5, 0.5)
    assert figures["eval/set-truncated_ratio"] == 0.0
    assert figures["eval/set/aborted_ratio"] == 0.4


def test_an_evaluation_tells_the_age_of_its_weights_too() -> None:
    figures = eval_metrics({"a": EvalSet([row(0, weight_versions=["3"])])}, current_version=5)
    assert figures["eval/a/weight_version/age/mean"] == 2.0


def test_rewards_of_an_evaluation_are_those_of_its_key() -> None:
    rows = [row(0, {"a": 1.0}), row(1, {"a": 0.0}), row(2, {"a": None}), placeholder(3)]
    figures = eval_metrics({"a": EvalSet(rows, n=2, reward_key="a")})
    assert (figures["eval/a"], figures["eval/a-none_reward_ratio"]) == (0.5, 0.5)
    assert figures["eval/a-pass@1"] == 0.5


def test_a_set_without_rollouts_takes_no_other_along() -> None:
    figures = eval_metrics({"none": EvalSet([]), "a": EvalSet([row(0)])})
    assert figures["eval/a"] == 1.0
    assert not any(name.startswith("eval/none") for name in figures)
