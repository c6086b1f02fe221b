"""Samples become columns for the trainer, one entry a row, under miles' names."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from miles_sim.rollout.batch import rollout_key
from miles_sim.rollout.errors import AssemblyError, RewardError, RolloutIdentityError
from miles_sim.rollout.sample import REPLAY, Sample, Status

Normalization = Literal["none", "mean", "std"]
"""Rewards as they are; less their group's mean; and over its standard deviation as well."""

EPSILON = 1e-6


def to_train_data(
    samples: Sequence[Sample], *, normalize: Normalization = "none", reward_key: str | None = None
) -> dict[str, list[Any]]:
    """The columns of a flat batch; the samples stay as they are.

    A column is there if any row has something for it, whatever the order of rows. `rollout_mask_sums`: trainable
    ids of the row's whole rollout. `rewards`, `raw_reward`: absent if no sample has a reward. Errors name the row.
    """
    for sample in samples:
        sample.validate()
    masks = [_mask(sample) for sample in samples]
    data: dict[str, list[Any]] = {
        "tokens": [list(sample.tokens) for sample in samples],
        "response_lengths": [sample.response_length for sample in samples],
        "loss_masks": masks,
        "truncated": [int(sample.status is Status.TRUNCATED) for sample in samples],
        "sample_indices": [sample.index for sample in samples],
        "rollout_ids": [_rollout_id(sample, row) for row, sample in enumerate(samples)],
        "rollout_mask_sums": mask_sums(samples, masks),
        "spec_info": [sample.spec_info.to_dict() for sample in samples],
        "prefix_cache_info": [sample.prefix_cache_info.to_dict() for sample in samples],
    }
    raw = raw_rewards(samples, reward_key)
    if raw is not None:
        data["raw_reward"] = _raw_column(samples, raw)
        data["rewards"] = normalized(samples, raw, normalize)
    for name in ("rollout_log_probs", "teacher_log_probs", "opd_reverse_kl"):
        _optional(data, name, samples, masks, lambda sample: [0.0] * sample.response_length)
    for name in REPLAY:
        _optional(data, name, samples, masks, _no_rows(samples, name))
    for column, name in (("metadata", "train_metadata"), ("multimodal_train_inputs", "multimodal_train_inputs")):
        if any(getattr(sample, name) is not None for sample in samples):
            data[column] = [getattr(sample, name) for sample in samples]
    if any(sample.weight_versions for sample in samples):
        data["weight_versions"] = [list(sample.weight_versions) for sample in samples]
    if any("round_number" in sample.metadata for sample in samples):
        data["round_number"] = [_round_number(sample, row) for row, sample in enumerate(samples)]
    return data


def mask_sums(samples: Sequence[Sample], masks: Sequence[Sequence[int]]) -> list[int]:
    """For each row, the trainable ids of all rows of its rollout."""
    totals: dict[Any, int] = {}
    keys = [rollout_key(sample, row) for row, sample in enumerate(samples)]
    for key, mask in zip(keys, masks, strict=True):
        totals[key] = totals.get(key, 0) + sum(mask)
    return [totals[key] for key in keys]


def raw_rewards(samples: Sequence[Sample], reward_key: str | None = None) -> list[float | None] | None:
    """Each row's reward, None where an unfinished one has none; None altogether if no row has any.

    RewardError names a row that is finished and has no reward while others do, or none under `reward_key`.
    """
    rewards = [_reward(sample, row, reward_key) for row, sample in enumerate(samples)]
    if all(reward is None for reward in rewards):
        return None
    for row, (sample, reward) in enumerate(zip(samples, rewards, strict=True)):
        if reward is None and sample.status not in (Status.ABORTED, Status.FAILED) and not sample.remove_sample:
            raise RewardError(f"row {row}: reward: None, though it is {sample.status.value} and others have one")
    return rewards


def normalized(samples: Sequence[Sample], raw: Sequence[float | None], normalize: Normalization) -> list[float]:
    """Rewards as advantages: per rollout within its prompt's group, then the same for all samples of the rollout.

    A row without reward takes no part in its group's mean and gets 0.0. The deviation is that of a sample (n - 1);
    a group of one rollout, or of equal rewards, is not divided. RewardError names siblings with unequal rewards.
    """
    if normalize not in ("none", "mean", "std"):
        raise RewardError(f"normalize: {normalize!r} is not 'none', 'mean' or 'std'")
    if normalize == "none":
        return [0.0 if reward is None else reward for reward in raw]
    groups: dict[int, dict[Any, float]] = {}
    keys = [rollout_key(sample, row) for row, sample in enumerate(samples)]
    for row, (sample, key, reward) in enumerate(zip(samples, keys, raw, strict=True)):
        if reward is None:
            continue
        if sample.group_index is None:
            raise RewardError(f"row {row}: group_index: None; rewards are normalized within a group")
        shared = groups.setdefault(sample.group_index, {}).setdefault(key, reward)
        if shared != reward:
            rows = [n for n, other in enumerate(keys) if other == key]
            values = [raw[n] for n in rows]
            raise RewardError(
                f"rollout {sample.effective_id}: reward: rows {rows} have {values}; siblings must share one"
            )
    advantages = {key: value for group in groups.values() for key, value in _centred(group, normalize).items()}
    return [0.0 if reward is None else advantages[key] for key, reward in zip(keys, raw, strict=True)]


def _centred(group: dict[Any, float], normalize: Normalization) -> dict[Any, float]:
    mean = math.fsum(group.values()) / len(group)
    centred = {key: reward - mean for key, reward in group.items()}
    if normalize == "mean" or len(group) < 2:
        return centred
    deviation = math.sqrt(math.fsum(value * value for value in centred.values()) / (len(group) - 1))
    return {key: value / (deviation + EPSILON) for key, value in centred.items()} if deviation else centred


def _mask(sample: Sample) -> list[int]:
    if sample.remove_sample:
        return [0] * sample.response_length
    return [1] * sample.response_length if sample.loss_mask is None else list(sample.loss_mask)


def _rollout_id(sample: Sample, row: int) -> int:
    if sample.effective_id is None:
        raise RolloutIdentityError(f"row {row}: rollout_id: None, and index: None; a row counts for some rollout")
    return sample.effective_id


def _reward(sample: Sample, row: int, reward_key: str | None) -> float | None:
    reward: Any = sample.reward
    place = f"row {row}: reward"
    if reward is None:
        return None
    if reward_key is not None:
        if not isinstance(reward, dict) or reward_key not in reward:
            raise RewardError(f"{place}: {reward!r:.80} has no key {reward_key!r}")
        reward, place = reward[reward_key], f"{place}[{reward_key!r}]"
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
        raise RewardError(f"{place}: {reward!r:.80} is not a finite number")
    return reward


def _raw_column(samples: Sequence[Sample], raw: Sequence[float | None]) -> list[float]:
    """Rewards for the record; a sample's own `metadata["raw_reward"]` goes first, a missing one shows as 0.0."""
    return [
        sample.metadata.get("raw_reward", 0.0 if reward is None else reward)
        for sample, reward in zip(samples, raw, strict=True)
    ]


def _optional(
    data: dict[str, list[Any]],
    name: str,
    samples: Sequence[Sample],
    masks: Sequence[Sequence[int]],
    blank: Callable[[Sample], Any],
) -> None:
    """Add the column `name`, if any row has it; rows that train nothing may do without, and get `blank`."""
    if all(getattr(sample, name) is None for sample in samples):
        return
    column = []
    for row, (sample, mask) in enumerate(zip(samples, masks, strict=True)):
        value = getattr(sample, name)
        if value is None and any(mask):
            raise AssemblyError(f"row {row}: {name}: None, though it trains {sum(mask)} ids and other rows have it")
        column.append(blank(sample) if value is None else value)
    data[name] = column


def _no_rows(samples: Sequence[Sample], name: str) -> Callable[[Sample], Any]:
    """Zero rows for a sample that has none, in the shape that the others' rows have."""
    shape = next((getattr(s, name).shape[1:] for s in samples if getattr(s, name) is not None), ())
    return lambda sample: np.zeros((max(len(sample.tokens) - 1, 0), *shape), dtype=np.int32)


def _round_number(sample: Sample, row: int) -> Any:
    if "round_number" not in sample.metadata:
        raise AssemblyError(f"row {row}: metadata.round_number: missing, though other rows have it")
    return sample.metadata["round_number"]
