"""Rewards: one a rollout, compared with the rollouts of the same prompt."""

import math
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.errors import RewardError
from miles_sim.rollout.rewards import EPSILON, group_rewards, normalized, raw_rewards
from miles_sim.rollout.sample import Sample, Status


def row(index: int, reward: Any = 1.0, group: int | None = 0, **fields: Any) -> Sample:
    return Sample(index=index, group_index=group, reward=reward, **{"status": Status.COMPLETED, **fields})


def advantages(rows: list[Sample], normalize: Any = "std", **options: Any) -> list[float]:
    raw = raw_rewards(rows, options.pop("reward_key", None))
    assert raw is not None
    return normalized(rows, raw, normalize, **options)


rollouts = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 3), st.floats(-2, 2).map(lambda x: round(x, 2)) | st.none()),
    min_size=1,
    max_size=8,
)


@given(rollouts, st.sampled_from(["mean", "std"]), st.randoms(use_true_random=False))
def test_rewards_are_normalized_per_rollout_in_any_order(
    drawn: list[tuple[int, int, float | None]], normalize: Any, random: Any
) -> None:
    """However many leaves a rollout yields, it weighs once in its prompt's baseline; an aborted one not at all."""
    rows = [
        row(n, reward, group, status=Status.ABORTED if reward is None else Status.COMPLETED)
        for n, (group, leaves, reward) in enumerate(drawn)
        for _ in range(leaves)
    ]
    random.shuffle(rows)
    if all(reward is None for _, _, reward in drawn):
        assert raw_rewards(rows) is None
        return
    for sample, value in zip(rows, advantages(rows, normalize), strict=True):
        rewards = [reward for group, _, reward in drawn if group == sample.group_index and reward is not None]
        expected = 0.0
        if sample.reward is not None:
            expected = sample.reward - statistics.fmean(rewards)
            if normalize == "std" and len(set(rewards)) > 1:
                expected /= statistics.stdev(rewards) + EPSILON
        assert math.isclose(value, expected, rel_tol=1e-6, abs_tol=1e-9)


@given(rollouts)
def test_the_same_rows_in_another_order_give_the_very_same_numbers(
    drawn: list[tuple[int, int, float | None]],
) -> None:
    rows = [row(n, 0.1 if reward is None else reward, group) for n, (group, _, reward) in enumerate(drawn)]
    forth, back = advantages(rows), advantages(rows[::-1])
    assert forth == back[::-1]


def test_unequal_rewards_of_siblings_are_refused_by_name() -> None:
    rows = [row(3, 1.0), row(4, 1.0), row(3, 0.5)]
    with pytest.raises(RewardError, match=r"rollout 3: reward: rows \[0, 2\] have \[1\.0, 0\.5\]"):
        advantages(rows)
    assert advantages(rows, "none") == [1.0, 1.0, 0.5]


def test_unequal_rewards_may_be_kept() -> None:
    """The rollout counts with their mean, each sample stands on its own."""
    rows = [row(3, 1.0), row(4, 0.0), row(3, 0.5)]
    assert advantages(rows, "mean", unequal="keep") == [0.625, -0.375, 0.125]
    assert group_rewards(rows, [1.0, 0.0, 0.5], "keep") == {0: {(0, 3): 0.75, (0, 4): 0.0}}


def test_equal_rewards_leave_nothing_of_rounding() -> None:
    assert advantages([row(n, 0.1) for n in range(3)]) == [0.0] * 3


def test_rewards_by_key() -> None:
    rows = [row(0, {"a": 1.0}), row(1, {"a": 3.0}), row(2, None, status=Status.ABORTED)]
    assert advantages(rows, "mean", reward_key="a") == [-1.0, 1.0, 0.0]
    with pytest.raises(RewardError, match=r"row 0: reward: .* has no key 'b'"):
        raw_rewards(rows, "b")
    with pytest.raises(RewardError, match=r"row 0: reward: \{'a'"):
        raw_rewards(rows)
    with pytest.raises(RewardError, match="row 0: reward: None"):
        raw_rewards([row(0, {"a": None}), rows[1]], "a")


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({}, False),
        ({"status": Status.TRUNCATED}, False),
        ({"status": Status.ABORTED}, True),
        ({"status": Status.FAILED}, True),
        ({"remove_sample": True}, True),
    ],
)
def test_a_missing_reward_is_named_unless_the_row_is_unfinished(fields: dict[str, Any], allowed: bool) -> None:
    rows = [row(0), row(1, None, **fields)]
    if allowed:
        assert advantages(rows) == [0.0, 0.0]
    else:
        with pytest.raises(RewardError, match="row 1: reward: None"):
            raw_rewards(rows)


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), True, "1", [1], 10**400, np.bool_(True), 1j])
def test_odd_rewards_are_refused_by_name(reward: Any) -> None:
    with pytest.raises(RewardError, match=r"row 0: reward: .* is not a finite number"):
        raw_rewards([row(0, reward)])


def test_numpy_scalars_are_numbers() -> None:
    raw = raw_rewards([row(0, np.float32(0.5)), row(1, np.int64(2))])
    assert raw == [0.5, 2.0]
    assert [type(value) for value in raw or []] == [float, float]


@pytest.mark.parametrize("rewards", [[1e308, 1e308, 0.0], [1.7e308, -1.7e308, -1.7e308]])
def test_sums_beyond_any_float_are_refused(rewards: list[float]) -> None:
    with pytest.raises(RewardError):
        advantages([row(n, reward) for n, reward in enumerate(rewards)], "mean")


def test_large_rewards_do_not_overflow_the_deviation() -> None:
    assert advantages([row(0, 1e200), row(1, -1e200)]) == pytest.approx([0.5**0.5, -(0.5**0.5)])


def test_normalizing_needs_a_group_and_known_ways() -> None:
    with pytest.raises(RewardError, match="row 0: group_index: None"):
        advantages([row(0, group=None)])
    with pytest.raises(RewardError, match="normalize: 'max'"):
        advantages([row(0)], "max")
    with pytest.raises(RewardError, match="unequal: 'sum'"):
        advantages([row(0)], unequal="sum")


def test_nothing_else_said_unequal_siblings_are_refused() -> None:
    rows = [row(3, 1.0), row(3, 0.5)]
    with pytest.raises(RewardError, match="siblings must share one"):
        group_rewards(rows, [1.0, 0.5])
    with pytest.raises(RewardError, match=r"^unequal: 'sum' is not one of"):
        group_rewards(rows, [1.0, 1.0], "sum")  # type: ignore[arg-type]
    with pytest.raises(RewardError, match=r"^normalize: 'max' is not one of"):
        normalized(rows, [1.0, 1.0], "max")  # type: ignore[arg-type]


def test_an_advantage_beyond_any_float_is_named_by_its_row() -> None:
    rows = [row(0, 1.7e308), row(1, -1.7e308), row(2, -1.7e308)]
    with pytest.raises(RewardError, match=r"^(row 0: rewards|reward): "):
        advantages(rows, "mean")


def test_without_normalization_a_row_without_reward_counts_zero() -> None:
    rows = [row(0, 2.0), row(1, None, status=Status.ABORTED)]
    assert advantages(rows, "none") == [2.0, 0.0]
