"""From what all rollouts returned to the shards that the ranks train on."""

from dataclasses import dataclass
from typing import Any

from miles_sim.rollout.batch import (
    Nested,
    dynamic_batch_size,
    flatten,
    rollout_key,
    trim,
    validate_rollout_ids,
)
from miles_sim.rollout.errors import BatchError
from miles_sim.rollout.rewards import NORMALIZATIONS, UNEQUAL, Normalization, Unequal
from miles_sim.rollout.sample import Sample
from miles_sim.rollout.split import split
from miles_sim.rollout.train_data import to_train_data


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """How a batch is trained on."""

    global_batch_size: int | None = None
    """Rollouts of a training step; None: one step of as many as `dp_size` ranks can share evenly
    (miles' `use_dynamic_global_batch_size`, counted in rollouts)."""
    dp_size: int = 1
    """Data-parallel ranks."""
    micro_batch_size: int | None = None
    """Rows of a micro-batch."""
    max_tokens: int | None = None
    """Most ids of a micro-batch (miles' `max_tokens_per_gpu`)."""
    normalize: Normalization = "std"
    reward_key: str | None = None
    unequal: Unequal = "refuse"

    def __post_init__(self) -> None:
        for name, optional in _SIZES.items():
            value = getattr(self, name)
            if not (value is None and optional) and (type(value) is not int or value < 1):
                raise BatchError(f"{name}: {value!r} is not a whole number of at least 1")
        for name, allowed in {"normalize": NORMALIZATIONS, "unequal": UNEQUAL}.items():
            if getattr(self, name) not in allowed:
                raise BatchError(f"{name}: {getattr(self, name)!r} is not one of {allowed}")


_SIZES = {"global_batch_size": True, "dp_size": False, "micro_batch_size": True, "max_tokens": True}
"""Whether each may be None."""


@dataclass(frozen=True)
class TrainBatch:
    """One batch, ready to be trained on."""

    samples: list[Sample]
    """Those that are trained on; the rows of `data`."""
    dropped: list[Sample]
    """Those of the rollouts that fill no step."""
    data: dict[str, list[Any]]
    """Columns, one entry a row. Baselines are those of whole groups, whatever is dropped."""
    shards: list[dict[str, Any]]
    """One a rank; see `split`. With `dynamic_global_batch_size` where the size is not given."""


def train_batch(nested: Nested, settings: BatchSettings) -> TrainBatch:
    """Validate, flatten, convert, cut into steps and split; nothing of the samples changes.

    BatchError where there are fewer rollouts than a step needs; else the errors of these parts.
    """
    validate_rollout_ids(nested)
    samples = flatten(nested)
    columns = to_train_data(
        samples, normalize=settings.normalize, reward_key=settings.reward_key, unequal=settings.unequal
    )
    size = settings.global_batch_size
    trimmed = trim(samples, size if size is not None else dynamic_batch_size(samples, settings.dp_size))
    if not trimmed.steps:
        count = len({rollout_key(sample, row) for row, sample in enumerate(samples)})
        raise BatchError(f"batch: {count} rollouts are fewer than global_batch_size={size}")
    data = {name: [column[row] for row in trimmed.kept] for name, column in columns.items()}
    place = {row: number for number, row in enumerate(trimmed.kept)}
    shards = split(
        data,
        [[place[row] for row in step] for step in trimmed.steps],
        num_rollouts=trimmed.rollouts,
        dp_size=settings.dp_size,
        micro_batch_size=settings.micro_batch_size,
        max_tokens=settings.max_tokens,
    )
    if size is None:
        shards = [{**shard, "dynamic_global_batch_size": trimmed.rollouts[0]} for shard in shards]
    return TrainBatch(
        samples=[samples[row] for row in trimmed.kept],
        dropped=[samples[row] for row in trimmed.dropped],
        data=data,
        shards=shards,
    )
