"""What the trainer's side makes of the samples."""

import pytest

from miles_sim.rollout import train_data
from miles_sim.targets import reference_batch

from .defect import defect


@defect("id-clash/v2", "identity/distinct-across-batch")
def ids_of_a_batch_go_unchecked(m: pytest.MonkeyPatch) -> None:
    """Explicit ids and indices share one number space, and nobody looks."""
    m.setattr(reference_batch, "validate_rollout_ids", lambda nested: None)


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
