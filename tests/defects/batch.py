"""What the trainer's side makes of the samples."""

from collections.abc import Sequence
from typing import Any

import pytest

from miles_sim.rollout import batch, rewards, split, train_batch, train_data
from miles_sim.rollout.sample import Sample

from .defect import defect


@defect("id-clash/v2", "identity/distinct-across-batch")
def ids_of_a_batch_go_unchecked(m: pytest.MonkeyPatch) -> None:
    """Explicit ids and indices share one number space, and nobody looks."""
    m.setattr(train_batch, "validate_rollout_ids", lambda nested: None)


@defect("tools/v2", "train-data/rows", "train-data/mask-sums")
def rows_lose_their_mask(m: pytest.MonkeyPatch) -> None:
    """A default mask takes the place of the sample's own."""
    m.setattr(train_data, "_mask", lambda sample: [1] * sample.response_length)


@defect("id-explicit/v2", "train-data/ids")
def rows_stand_under_their_index(m: pytest.MonkeyPatch) -> None:
    """rollout_ids is filled from the index alone."""
    m.setattr(train_data, "_rollout_id", lambda sample, row: sample.index)


@defect("compaction-summary/v2", "train-data/mask-sums")
def each_row_is_its_own_rollout(m: pytest.MonkeyPatch) -> None:
    """The denominator is the row's, not the rollout's."""
    m.setattr(train_data, "mask_sums", lambda samples, masks: [sum(mask) for mask in masks])


@defect("group/v2", "train-data/rewards-per-rollout")
def baselines_are_taken_over_rows(m: pytest.MonkeyPatch) -> None:
    """miles before PR #2369: mean and deviation run over flattened rows, so that leaves weigh as rollouts."""
    m.setattr(rewards, "rollout_key", lambda sample, row: (sample.group_index, "row", row))


@defect("rewards-mean/v2", "train-data/rewards-per-rollout")
def the_whole_batch_is_one_group(m: pytest.MonkeyPatch) -> None:
    """miles before PR #2369: a row count that is not n times B collapses all prompts into one baseline."""
    group = rewards.group_rewards

    def one(*args: Any) -> Any:
        whole = {key: value for members in group(*args).values() for key, value in members.items()}
        return dict.fromkeys(group(*args), whole)

    m.setattr(rewards, "group_rewards", one)


@defect("rewards-unequal/v2", "train-data/unequal-rewards-refused")
def the_first_sibling_speaks_for_all(m: pytest.MonkeyPatch) -> None:
    """A rollout's reward is that of whichever row comes first."""
    group = rewards.group_rewards
    m.setattr(rewards, "group_rewards", lambda samples, raw, unequal: group(samples, raw, "keep"))


@defect("batch-trimmed/v2", "train-data/trimming")
def batches_are_trimmed_by_rows(m: pytest.MonkeyPatch) -> None:
    """A step of as many rows as it should have rollouts: the last rollout is cut in two."""

    def by_rows(samples: Sequence[Sample], size: int) -> batch.Trimmed:
        whole = (len(samples) - 1) // size * size + 1
        return batch.Trimmed(list(range(whole)), list(range(whole, len(samples))), [list(range(whole))], [size])

    m.setattr(train_batch, "trim", by_rows)


@defect("batch-too-small/v2", "train-data/trimming")
def a_step_is_taken_with_whatever_there_is(m: pytest.MonkeyPatch) -> None:
    """Fewer rollouts than a step needs make a smaller one."""
    trim = train_batch.trim
    m.setattr(train_batch, "trim", lambda samples, size: trim(samples, 1))


@defect("batch-trimmed/v2", "train-data/shards")
def shards_carry_listed_columns(m: pytest.MonkeyPatch) -> None:
    """miles package_shards: a column that is not on the list stays behind."""
    shard = split._shard

    def listed(data: Any, *rest: Any) -> dict[str, Any]:
        return shard({name: data[name] for name in data if name != "rollout_log_probs"}, *rest)

    m.setattr(split, "_shard", listed)


@defect("batch-trimmed/v2", "train-data/shards")
def ranks_take_rows_in_turn(m: pytest.MonkeyPatch) -> None:
    """The legacy split: ranks may be given unequal numbers of micro-batches."""

    def alone(rows: Sequence[int], lengths: Any, *rest: Any) -> list[list[int]]:
        return [[row] for row in rows]

    def uneven(weights: Sequence[int], parts: int, *, most: int | None = None) -> list[list[int]]:
        return [list(range(len(weights) - 1)), [len(weights) - 1]]

    def shard(data: Any, own: Any, lengths: Any, counts: Any, rollouts: Any) -> dict[str, Any]:
        return packaged(data, own, lengths, [len(own)], rollouts)

    packaged = split._shard
    m.setattr(split, "_micro_batches", alone)
    m.setattr(split, "balanced", uneven)
    m.setattr(split, "_shard", shard)


@defect("group/v2", "train-data/rows")
def rows_are_sorted_as_if_they_were_flat(m: pytest.MonkeyPatch) -> None:
    """miles cebddce6a: rollouts of several samples are put in order as if each was one."""
    flatten = train_batch.flatten
    m.setattr(train_batch, "flatten", lambda nested: sorted(flatten(nested), key=lambda s: s.response_length))
