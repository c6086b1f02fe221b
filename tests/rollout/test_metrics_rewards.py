"""Figures of rewards: by rollout and prompt, against sums over all draws."""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.errors import SettingsError
from miles_sim.rollout.metrics_rewards import mean_reward, pass_rates, rewarded, zero_std
from miles_sim.rollout.sample import Sample, Status


def row(index: int, reward: Any, group: int | None = 0) -> Sample:
    status = Status.ABORTED if reward is None else Status.COMPLETED
    return Sample(index=index, rollout_id=index, group_index=group, reward=reward, status=status)


groups = st.lists(
    st.lists(st.tuples(st.sampled_from([0.0, 1.0, 0.5, None]), st.integers(1, 3)), max_size=6), max_size=4
)


@given(groups, st.integers(2, 9), st.randoms(use_true_random=False))
def test_pass_at_k_is_the_share_of_draws_with_a_solved_rollout(drawn: Any, n: int, random: Any) -> None:
    """However many leaves a rollout has, whatever was aborted or filtered, in any order."""
    rows, index = [], 0
    for group, rollouts in enumerate(drawn):
        for reward, leaves in rollouts:
            rows += [row(index, reward, group) for _ in range(leaves)]
            index += 1
    random.shuffle(rows)
    found = pass_rates(rows, n)
    for k in (1, 2, 4, 8):
        shares = []
        for rollouts in drawn:
            rewards = [reward for reward, _ in rollouts if reward is not None]
            draws = list(combinations(rewards, k))
            if draws and k <= n:
                shares.append(sum(1.0 in draw for draw in draws) / len(draws))
        assert found.get(f"pass@{k}") == (pytest.approx(sum(shares) / len(shares)) if shares else None)


def test_a_single_rollout_a_prompt_has_no_pass_rate() -> None:
    assert pass_rates([row(0, 1.0)], 1) == {}
    assert pass_rates([], 8) == {}
    assert pass_rates([row(0, 1.0, None), row(1, 1.0, None)], 2) == {}


@pytest.mark.parametrize("n", [0, -1, 1.5, None, True])
def test_n_is_a_whole_number_of_at_least_one(n: Any) -> None:
    with pytest.raises(SettingsError, match="n: "):
        pass_rates([], n)


def test_a_rollout_is_solved_in_all_its_samples() -> None:
    assert pass_rates([row(0, 1.0), row(0, 0.0), row(1, 0.0)], 2)["pass@2"] == 0.0


def test_prompts_that_teach_nothing_are_counted() -> None:
    rows = [row(0, 0.0), row(1, 0.0), row(2, 1.0, 1), row(3, 1.0, 1), row(3, 1.0, 1), row(4, 0.0, 2), row(5, 1.0, 2)]
    rows += [row(6, 1.0, 3), row(7, None, 3), row(8, -0.04, 4), row(9, -0.04, 4), row(10, 1.0, None)]
    assert zero_std(rows) == {
        "zero_std/count_0.0": 2,
        "zero_std/count_1.0": 1,
        "zero_std/all_zero_percentage": 0.5,
        "zero_std/all_one_percentage": 0.25,
    }


def test_a_lone_rollout_with_several_samples_is_no_group() -> None:
    assert zero_std([row(0, 1.0), row(0, 1.0)]) == {}


def test_rewards_that_are_none_cost_nothing() -> None:
    rows = [row(0, {"a": 1.0}), row(1, {"a": 3.0}), row(2, "odd"), row(3, None)]
    assert mean_reward(rows, "a") == 2.0
    assert rewarded(rows, "a") == 2
    assert mean_reward(rows) is None
    assert zero_std(rows) == pass_rates(rows, 2) == {}


def test_a_prompt_that_teaches_nothing_is_counted_under_its_reward_to_one_digit() -> None:
    assert zero_std([row(0, 0.26), row(1, 0.26)]) == {
        "zero_std/count_0.3": 1,
        "zero_std/all_zero_percentage": 0.0,
        "zero_std/all_one_percentage": 0.0,
    }


def test_prompts_that_teach_nothing_are_counted_by_the_reward_of_the_key() -> None:
    assert zero_std([row(0, {"a": 1.0, "b": 0.0}), row(1, {"a": 1.0, "b": 1.0})], "a")["zero_std/count_1.0"] == 1
