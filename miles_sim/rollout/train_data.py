"""Samples become columns for the trainer, one entry a row, under miles' names."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from miles_sim.rollout.batch import rollout_key
from miles_sim.rollout.errors import AssemblyError, RolloutIdentityError
from miles_sim.rollout.rewards import Normalization, Unequal, normalized, number, raw_rewards
from miles_sim.rollout.sample import REPLAY, Sample, Status


def to_train_data(
    samples: Sequence[Sample],
    *,
    normalize: Normalization = "none",
    reward_key: str | None = None,
    unequal: Unequal = "refuse",
) -> dict[str, list[Any]]:
    """The columns of a flat batch; the samples stay as they are.

    A column is there if any row has something for it, whatever the order of rows; arrays are the samples' own.
    `rollout_mask_sums`: trainable ids of the row's whole rollout. `rewards`, `raw_reward`: absent if no sample has a
    reward. Errors name the row.
    """
    for row, sample in enumerate(samples):
        _validate(sample, row)
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
        data["rewards"] = normalized(samples, raw, normalize, unequal)
    for name in ("rollout_log_probs", "teacher_log_probs", "opd_reverse_kl"):
        _optional(data, name, samples, masks, lambda sample: [0.0] * sample.response_length)
    for name in REPLAY:
        _optional(data, name, samples, masks, _no_rows(samples, name))
    for column, name in (("metadata", "train_metadata"), ("multimodal_train_inputs", "multimodal_train_inputs")):
        if any(getattr(sample, name) is not None for sample in samples):
            data[column] = [getattr(sample, name) for sample in samples]
    if any(sample.weight_versions for sample in samples):
        data["weight_versions"] = [list(sample.weight_versions) for sample in samples]
    if any(sample.adapter is not None for sample in samples):
        data["adapter_slots"] = [_adapter_slot(sample, row) for row, sample in enumerate(samples)]
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


def _validate(sample: Sample, row: int) -> None:
    try:
        sample.validate()
    except AssemblyError as error:
        raise AssemblyError(f"row {row}: {error}") from None


def _mask(sample: Sample) -> list[int]:
    if sample.remove_sample:
        return [0] * sample.response_length
    return [1] * sample.response_length if sample.loss_mask is None else list(sample.loss_mask)


def _rollout_id(sample: Sample, row: int) -> int:
    if sample.effective_id is None:
        raise RolloutIdentityError(f"row {row}: rollout_id: None, and index: None; a row counts for some rollout")
    return sample.effective_id


def _raw_column(samples: Sequence[Sample], raw: Sequence[float | None]) -> list[float]:
    """Rewards for the record; a sample's own `metadata["raw_reward"]` goes first, a missing one shows as 0.0."""
    return [
        number(sample.metadata.get("raw_reward", 0.0 if reward is None else reward), f"row {row}: raw_reward")
        for row, (sample, reward) in enumerate(zip(samples, raw, strict=True))
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
        column.append(blank(sample) if value is None else list(value) if isinstance(value, list) else value)
    data[name] = column


def _no_rows(samples: Sequence[Sample], name: str) -> Callable[[Sample], Any]:
    """Zero rows for a sample that has none, in the shape that the others' rows have."""
    shape = next((getattr(s, name).shape[1:] for s in samples if getattr(s, name) is not None), ())
    return lambda sample: np.zeros((max(len(sample.tokens) - 1, 0), *shape), dtype=np.int32)


def _adapter_slot(sample: Sample, row: int) -> int:
    if sample.adapter is None:
        raise AssemblyError(f"row {row}: adapter: None, though other rows have one")
    return sample.adapter.slot


def _round_number(sample: Sample, row: int) -> Any:
    if "round_number" not in sample.metadata:
        raise AssemblyError(f"row {row}: metadata.round_number: missing, though other rows have it")
    return sample.metadata["round_number"]
