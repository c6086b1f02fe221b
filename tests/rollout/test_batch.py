"""The nested batch: rollouts that can be told apart, in whole."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.batch import dynamic_batch_size, flatten, trim, validate_rollout_ids
from miles_sim.rollout.errors import BatchError, RolloutIdentityError
from miles_sim.rollout.sample import Sample


def row(index: int | None = None, rollout_id: int | None = None, group: int | None = 0) -> Sample:
    return Sample(index=index, rollout_id=rollout_id, group_index=group)


@pytest.mark.parametrize(
    "batch",
    [
        [],
        [[row(0), row(1)], [row(2, group=1), row(3, group=1)]],
        [[[row(0, 0), row(0, 0)], [row(1)]]],
        [[[row(0, 5), row(9, 5)], row(1)]],
        [[row(), row()]],
        [[[row(0)], [row(1)]]],
        [[row(0, group=None)], [row(1, group=None)]],
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
        ([[row(3, 7)], [row(7, group=1)]], r"batch\[1\]\[0\].*batch\[0\]\[0\] has the effective id 7"),
        ([[row(7), [row(3, 7), row(3, 7)]]], "effective id 7"),
        ([[[row(0, 4), row(0, 4)], [row(1, 4), row(1, 4)]]], "effective id 4"),
        ([[row(0), row(1, group=1)]], r"batch\[0\]\[1\]\[0\]\.group_index: 1, but batch\[0\] begins with 0"),
        ([[[row(0, 0), row(0, 0, group=None)]]], r"batch\[0\]\[0\]\[1\]\.group_index: None"),
        ([[row(0)], [row(1)]], r"batch\[1\]\[0\]: group_index 0: batch\[0\] has it too"),
    ],
)
def test_batches_that_cannot_be_told_apart_are_refused_by_place(batch: Any, named: str) -> None:
    with pytest.raises(RolloutIdentityError, match=named):
        validate_rollout_ids(batch)


def test_one_sample_in_two_places_is_refused() -> None:
    shared = row()
    with pytest.raises(RolloutIdentityError, match=r"batch\[0\]\[1\]\[0\]: the same object as batch\[0\]\[0\]\[0\]"):
        validate_rollout_ids([[shared, shared]])


@pytest.mark.parametrize(
    ("batch", "named"),
    [
        ([row(0)], r"batch\[0\]: Sample is not a list"),
        (row(0), "batch: Sample is not a list"),
        (None, "batch: NoneType is not a list"),
        ({"a": 1}, "batch: dict is not a list"),
        ([[]], r"batch\[0\]: a group without rollouts"),
        ([[[]]], r"batch\[0\]\[0\]: a rollout without samples"),
        ([[[[row(0)]]]], r"batch\[0\]\[0\]\[0\]: list is not a Sample"),
        ([[row(0), None]], r"batch\[0\]\[1\]: NoneType is not a list"),
        ([[[row(0), 3]]], r"batch\[0\]\[0\]\[1\]: int is not a Sample"),
    ],
)
def test_batches_of_another_shape_are_refused_by_place(batch: Any, named: str) -> None:
    with pytest.raises(BatchError, match=named):
        validate_rollout_ids(batch)
    with pytest.raises(BatchError, match=named):
        flatten(batch)


def test_flattening_keeps_order() -> None:
    rows = [row(0, 0), row(0, 0), row(1), row(2)]
    assert [id(s) for s in flatten([[rows[:2], rows[2]], [rows[3]]])] == [id(s) for s in rows]


@given(st.lists(st.integers(1, 3), max_size=8), st.integers(1, 4), st.randoms(use_true_random=False))
def test_whole_rollouts_stay_whatever_the_order(leaves: list[int], size: int, random: Any) -> None:
    samples = [row(n, n, group=n // 2) for n, count in enumerate(leaves) for _ in range(count)]
    random.shuffle(samples)
    trimmed = trim(samples, size)
    assert sorted(trimmed.kept + trimmed.dropped) == list(range(len(samples)))
    whole = len(leaves) // size * size
    assert {samples[n].rollout_id for n in trimmed.kept} == set(range(whole))
    assert {samples[n].rollout_id for n in trimmed.dropped} == set(range(whole, len(leaves)))
    assert trimmed.rollouts == [size] * (len(leaves) // size)
    for number, step in enumerate(trimmed.steps):
        assert {samples[n].rollout_id for n in step} == set(range(number * size, (number + 1) * size))
    assert sorted(n for step in trimmed.steps for n in step) == trimmed.kept


def test_ids_are_counted_within_their_group_and_missing_ones_by_row() -> None:
    samples = [row(1, group=0), row(1, group=1), row(group=1), row(group=1), row(0, group=None)]
    assert trim(samples, 2).steps == [[0, 1], [2, 3]]
    assert trim(samples, 2).dropped == [4]


def test_steps_come_by_group_and_id_and_those_of_no_group_last() -> None:
    samples = [row(2, group=None), row(0, group=3), row(9, group=0), row(1, group=3), row(4, group=0), row(group=0)]
    assert trim(samples, 1).steps == [[4], [2], [5], [1], [3], [0]]


def test_the_first_two_groups_stay_apart() -> None:
    assert trim([row(2, group=0), row(1, group=1)], 1).steps == [[0], [1]]


def test_leaves_of_a_rollout_come_by_their_ids() -> None:
    samples = [row(1, 1), row(0, 0), row(1, 1)]
    samples[0].tokens, samples[2].tokens = [5, 6], [5]
    assert trim(samples, 2).steps == [[1, 2, 0]]


@pytest.mark.parametrize(("count", "dp_size", "expected"), [(5, 2, 4), (4, 2, 4), (3, 3, 3), (7, 1, 7)])
def test_dynamic_size_counts_rollouts_not_rows(count: int, dp_size: int, expected: int) -> None:
    samples = [row(n, n) for n in range(count) for _ in range(n + 1)]
    assert dynamic_batch_size(samples, dp_size) == expected


@pytest.mark.parametrize("size", [0, -1, 1.5, None, True])
def test_sizes_are_whole_numbers_of_at_least_one(size: Any) -> None:
    with pytest.raises(BatchError, match="global_batch_size"):
        trim([row(0)], size)
    with pytest.raises(BatchError, match="dp_size"):
        dynamic_batch_size([row(0)], size)


def test_fewer_rollouts_than_ranks_are_refused() -> None:
    with pytest.raises(BatchError, match="batch: 1 rollouts are fewer than dp_size=2"):
        dynamic_batch_size([row(0, 0), row(0, 0)], 2)
