"""The nested batch: rollouts that can be told apart, in whole."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.batch import flatten, trim, validate_rollout_ids
from miles_sim.rollout.errors import RolloutIdentityError
from miles_sim.rollout.sample import Sample


def row(index: int | None = None, rollout_id: int | None = None, group: int = 0) -> Sample:
    return Sample(index=index, rollout_id=rollout_id, group_index=group)


@pytest.mark.parametrize(
    "batch",
    [
        [],
        [[row(0), row(1)], [row(2), row(3)]],
        [[[row(0, 0), row(0, 0)], [row(1)]]],
        [[[row(0, 5), row(9, 5)], row(1)]],
        [[row(), row()]],
        [[[row(0)], [row(1)]]],
    ],
)
def test_sound_batches_pass(batch: Any) -> None:
    validate_rollout_ids(batch)


@pytest.mark.parametrize(
    ("batch", "named"),
    [
        ([[[row(0), row(0)]]], r"batch\[0\]\[0\]\[0\]\.rollout_id: None"),
        ([[[row(0, 0), row(0)]]], r"batch\[0\]\[0\]\[1\]\.rollout_id: None"),
        ([[[row(0, 1), row(0, 2)]]], r"batch\[0\]\[0\]: rollout_id: siblings have \[1, 2\]"),
        ([[row(3, 7)], [row(7)]], r"batch\[1\]\[0\].*batch\[0\]\[0\] has the effective id 7"),
        ([[row(7), [row(3, 7), row(3, 7)]]], "effective id 7"),
        ([[[row(0, 4), row(0, 4)], [row(1, 4), row(1, 4)]]], "effective id 4"),
        ([row(0)], r"batch\[0\]: Sample is not a list"),
        (row(0), "batch: Sample is not a list"),
        ([[[]]], r"batch\[0\]\[0\]: a rollout without samples"),
        ([[[[row(0)]]]], "list is not a Sample"),
        ([[row(0), None]], "NoneType is not a list"),
        ([[[row(0), 3]]], "int is not a Sample"),
    ],
)
def test_unsound_batches_are_refused_by_place(batch: Any, named: str) -> None:
    with pytest.raises(RolloutIdentityError, match=named):
        validate_rollout_ids(batch)


def test_flattening_keeps_order() -> None:
    rows = [row(0, 0), row(0, 0), row(1), row(2)]
    assert [id(s) for s in flatten([[rows[:2], rows[2]], [rows[3]]])] == [id(s) for s in rows]


@given(st.lists(st.integers(1, 3), max_size=8), st.integers(1, 4))
def test_trimming_drops_whole_rollouts_and_tells(leaves: list[int], size: int) -> None:
    samples = [row(n, n) for n, count in enumerate(leaves) for _ in range(count)]
    trimmed = trim(samples, size)
    assert trimmed.samples + trimmed.dropped == samples
    kept = {sample.rollout_id for sample in trimmed.samples}
    assert len(kept) == len(leaves) // size * size
    assert kept.isdisjoint({sample.rollout_id for sample in trimmed.dropped})
