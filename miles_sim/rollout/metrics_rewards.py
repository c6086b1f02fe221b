"""Figures of rewards, by rollout: a rollout counts once, however many samples it has; one without reward not at all."""

import math
from collections.abc import Sequence
from typing import Any

from miles_sim.rollout.errors import RewardError, SettingsError
from miles_sim.rollout.rewards import group_rewards, mean, row_reward
from miles_sim.rollout.sample import Sample


def zero_std(samples: Sequence[Sample], reward_key: str | None = None) -> dict[str, float]:
    """Prompts whose rollouts all have one reward, and so teach nothing: their number by reward, and shares.

    `zero_std/count_{reward}`, rounded to one digit; `zero_std/all_zero_percentage` and `/all_one_percentage` of all
    prompts with two rewarded rollouts or more. Nothing where there are none.
    """
    groups = [list(own.values()) for group, own in _by_group(samples, reward_key).items() if group is not None]
    compared = [rewards for rewards in groups if len(rewards) > 1]
    if not compared:
        return {}
    counts: dict[str, float] = {}
    for rewards in compared:
        if min(rewards) == max(rewards):
            name = str(round(rewards[0], 1) + 0.0)  # no "-0.0"
            counts[name] = counts.get(name, 0.0) + 1
    return {
        **{f"zero_std/count_{name}": counts[name] for name in sorted(counts)},
        "zero_std/all_zero_percentage": counts.get("0.0", 0.0) / len(compared),
        "zero_std/all_one_percentage": counts.get("1.0", 0.0) / len(compared),
    }


def pass_rates(
    samples: Sequence[Sample], n: int, *, reward_key: str | None = None, solved: float = 1.0
) -> dict[str, float]:
    """`pass@k` for each power of two up to `n`, the rollouts asked for of each prompt; nothing for `n` = 1.

    The unbiased estimate 1 - C(m - c, k) / C(m, k) over the `m` rewarded rollouts of a prompt, `c` of which have the
    reward `solved` (in all their samples); the mean over prompts with `m` >= `k`, left out where there is none.
    Samples without `group_index` belong to no prompt.
    """
    if type(n) is not int or n < 1:
        raise SettingsError(f"n: {n!r} is not a whole number of at least 1")
    groups = [list(own.values()) for group, own in _by_group(samples, reward_key).items() if group is not None]
    rates = {}
    k = 1
    while n > 1 and k <= n:
        own = [_pass_at(k, len(rewards), rewards.count(solved)) for rewards in groups if len(rewards) >= k]
        if own:
            rates[f"pass@{k}"] = math.fsum(own) / len(own)
        k *= 2
    return rates


def mean_reward(samples: Sequence[Sample], reward_key: str | None = None) -> float | None:
    """The mean over rollouts that have a reward; None if none has."""
    rewards = [reward for own in _by_group(samples, reward_key).values() for reward in own.values()]
    return mean(rewards) if rewards else None


def rewarded(samples: Sequence[Sample], reward_key: str | None = None) -> int:
    """Rollouts that have a reward."""
    return sum(map(len, _by_group(samples, reward_key).values()))


def _pass_at(k: int, rollouts: int, solved: int) -> float:
    return 1.0 - math.comb(rollouts - solved, k) / math.comb(rollouts, k)


def _by_group(samples: Sequence[Sample], reward_key: str | None) -> dict[int | None, dict[tuple[Any, ...], float]]:
    """Each prompt's rollouts and their rewards, the mean of unequal siblings'."""
    return group_rewards(samples, [_readable(s, row, reward_key) for row, s in enumerate(samples)], "keep")


def _readable(sample: Sample, row: int, reward_key: str | None) -> float | None:
    """A figure must not cost a batch: what is no reward is none."""
    try:
        return row_reward(sample, row, reward_key)
    except RewardError:
        return None
