"""Rewards: one a rollout, whatever the number of its samples, and normalized among the rollouts of a prompt."""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Literal

from miles_sim.rollout.batch import rollout_key
from miles_sim.rollout.errors import RewardError
from miles_sim.rollout.sample import Sample, Status

Normalization = Literal["none", "mean", "std"]
"""Rewards as they are; less their group's mean; and over its standard deviation as well."""

Unequal = Literal["refuse", "keep"]
"""Siblings with different rewards: an error where rewards are normalized; or each sample keeps its own, and the
rollout counts in its group with their mean."""

EPSILON = 1e-6
NORMALIZATIONS = ("none", "mean", "std")
UNEQUAL = ("refuse", "keep")


def raw_rewards(samples: Sequence[Sample], reward_key: str | None = None) -> list[float | None] | None:
    """Each row's reward, None where an unfinished one has none; None altogether if no row has any.

    `reward_key` chooses among those of a dict. RewardError names a row that is finished and has no reward while others
    do, or none under `reward_key`, or one that is no finite number.
    """
    rewards = [row_reward(sample, row, reward_key) for row, sample in enumerate(samples)]
    if all(reward is None for reward in rewards):
        return None
    for row, (sample, reward) in enumerate(zip(samples, rewards, strict=True)):
        if reward is None and sample.status not in (Status.ABORTED, Status.FAILED) and not sample.remove_sample:
            raise RewardError(f"row {row}: reward: None, though it is {sample.status.value} and others have one")
    return rewards


def row_reward(sample: Sample, row: int, reward_key: str | None) -> float | None:
    """The reward of one row, None where it has none."""
    reward: Any = sample.reward
    place = f"row {row}: reward"
    if reward is None:
        return None
    if reward_key is not None:
        if not isinstance(reward, Mapping) or reward_key not in reward:
            raise RewardError(f"{place}: {reward!r:.80} has no key {reward_key!r}")
        reward, place = reward[reward_key], f"{place}[{reward_key!r}]"
        if reward is None:
            return None
    return number(reward, place)


def number(value: Any, place: str) -> float:
    """`value` as a finite float, numpy's scalars included; RewardError names the place of anything else."""
    try:
        found = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise RewardError(f"{place}: {value!r:.80} is not a finite number")
    return found


def normalized(
    samples: Sequence[Sample],
    raw: Sequence[float | None],
    normalize: Normalization,
    unequal: Unequal = "refuse",
) -> list[float]:
    """Rewards as advantages: per rollout within its prompt's group, then the same for all samples of the rollout.

    A row without reward takes no part in its group's mean and gets 0.0. The deviation is that of a sample (n - 1);
    a group of one rollout, or of equal rewards, is not divided. RewardError names siblings with unequal rewards, and
    a row without `group_index`.
    """
    if normalize not in NORMALIZATIONS:
        raise RewardError(f"normalize: {normalize!r} is not one of {NORMALIZATIONS}")
    if normalize == "none":
        return [0.0 if reward is None else reward for reward in raw]
    for row, (sample, reward) in enumerate(zip(samples, raw, strict=True)):
        if reward is not None and sample.group_index is None:
            raise RewardError(f"row {row}: group_index: None; rewards are normalized within a group")
    groups = group_rewards(samples, raw, unequal)
    scales = {group: _mean_and_divisor(list(members.values()), normalize) for group, members in groups.items()}
    advantages = []
    for row, (sample, reward) in enumerate(zip(samples, raw, strict=True)):
        centre, divisor = scales.get(sample.group_index, (0.0, 1.0))
        advantages.append(0.0 if reward is None else number((reward - centre) / divisor, f"row {row}: rewards"))
    return advantages


def group_rewards(
    samples: Sequence[Sample], raw: Sequence[float | None], unequal: Unequal = "refuse"
) -> dict[int | None, dict[tuple[Any, ...], float]]:
    """Each group's rollouts and their rewards; rows without one are left out.

    `unequal`: siblings with different rewards are a RewardError, or their rollout gets the mean of them.
    """
    if unequal not in UNEQUAL:
        raise RewardError(f"unequal: {unequal!r} is not one of {UNEQUAL}")
    rows: dict[int | None, dict[tuple[Any, ...], list[int]]] = {}
    for row, (sample, reward) in enumerate(zip(samples, raw, strict=True)):
        if reward is not None:
            rows.setdefault(sample.group_index, {}).setdefault(rollout_key(sample, row), []).append(row)
    groups: dict[int | None, dict[tuple[Any, ...], float]] = {}
    for group, members in rows.items():
        for key, own in members.items():
            values = [value for row in own if (value := raw[row]) is not None]
            if unequal == "refuse" and len(set(values)) > 1:
                raise RewardError(
                    f"rollout {samples[own[0]].effective_id}: reward: rows {own} have {values}; siblings must share one"
                )
            shared = values[0] if len(set(values)) == 1 else mean(values)
            groups.setdefault(group, {})[key] = shared
    return groups


def mean(values: Sequence[float]) -> float:
    """The mean, the same in any order; RewardError where the sum is beyond any float."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        raise RewardError(
            f"reward: the sum of {len(values)} rewards up to {max(map(abs, values))} is too large"
        ) from None


def _mean_and_divisor(rewards: Sequence[float], normalize: Normalization) -> tuple[float, float]:
    if min(rewards) == max(rewards):  # so that rounding of the mean is not divided by itself
        return rewards[0], 1.0
    centre = mean(rewards)
    if normalize == "mean":
        return centre, 1.0
    widest = max(abs(reward - centre) for reward in rewards)
    # Squares of the parts of the widest one cannot overflow.
    parts = math.fsum(((reward - centre) / widest) ** 2 for reward in rewards)
    return centre, widest * math.sqrt(parts / (len(rewards) - 1)) + EPSILON
