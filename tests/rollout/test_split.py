"""Shards: every column, whole rollouts a step, as many micro-batches on each rank, lengths in balance."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.batch import Trimmed, trim
from miles_sim.rollout.errors import BatchError
from miles_sim.rollout.sample import Sample
from miles_sim.rollout.split import balanced, split

Leaves = list[list[int]]
"""Lengths of each rollout's rows."""


def batch(leaves: Leaves, size: int, order: Any = None) -> tuple[dict[str, list[Any]], Trimmed]:
    rows = [
        Sample(index=n, rollout_id=n, group_index=0, tokens=[n, place] + [9] * length)
        for n, own in enumerate(leaves)
        for place, length in enumerate(own)
    ]
    if order is not None:
        order.shuffle(rows)
    columns = {
        "tokens": [s.tokens for s in rows],
        "rollout_ids": [s.index for s in rows],
        "own": [{"a": s.tokens} for s in rows],
    }
    return columns, trim(rows, size)


def cut(data: dict[str, list[Any]], trimmed: Trimmed, **sizes: Any) -> list[dict[str, Any]]:
    return split(data, trimmed.steps, num_rollouts=trimmed.rollouts, **sizes)


lists = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=9)


@given(leaves=lists, size=st.integers(1, 4), dp_size=st.integers(1, 4), limit=st.integers(1, 5) | st.none())
def test_each_kept_row_is_in_one_shard_with_all_its_columns(
    leaves: Leaves, size: int, dp_size: int, limit: int | None
) -> None:
    data, trimmed = batch(leaves, size)
    counts = [sum(len(own) for own in leaves[n : n + size]) for n in range(0, len(leaves) // size * size, size)]
    if any(count < dp_size for count in counts):
        with pytest.raises(BatchError, match=r"step \d+: \d+ rows are fewer than dp_size"):
            cut(data, trimmed, dp_size=dp_size, micro_batch_size=limit)
        return
    shards = cut(data, trimmed, dp_size=dp_size, micro_batch_size=limit)
    assert len(shards) == dp_size
    assert sorted(row for shard in shards for row in shard["partition"]) == trimmed.kept
    for shard in shards:
        assert data.keys() <= shard.keys()
        for name, column in data.items():
            assert shard[name] == [column[row] for row in shard["partition"]]
        assert shard["total_lengths"] == [len(tokens) for tokens in shard["tokens"]]
        assert shard["num_microbatches"] == shards[0]["num_microbatches"]
        assert shard["num_rollouts"] == [size] * len(counts)
        assert [n for own in shard["micro_batch_indices"] for n in own] == list(range(len(shard["partition"])))
        assert len(shard["micro_batch_indices"]) == sum(shard["num_microbatches"])
        for own in shard["micro_batch_indices"]:
            assert 1 <= len(own) <= (2 * limit if limit else len(own))
    for number in range(len(counts)):
        assert sorted(_step(shards, number)) == list(range(number * size, (number + 1) * size))


def _step(shards: list[dict[str, Any]], number: int) -> set[int]:
    """Rollouts that all ranks together train in a step."""
    found = set()
    for shard in shards:
        begin = sum(shard["num_microbatches"][:number])
        for own in shard["micro_batch_indices"][begin : begin + shard["num_microbatches"][number]]:
            found |= {shard["rollout_ids"][row] for row in own}
    return found


@given(leaves=lists, dp_size=st.integers(1, 3), order=st.randoms(use_true_random=False))
def test_order_of_rows_changes_no_shard(leaves: Leaves, dp_size: int, order: Any) -> None:
    if sum(map(len, leaves)) < dp_size:
        return
    contents = []
    for shuffled in (None, order):
        data, trimmed = batch(leaves, len(leaves), shuffled)
        contents.append([shard["tokens"] for shard in cut(data, trimmed, dp_size=dp_size, micro_batch_size=2)])
    assert contents[0] == contents[1]


@given(leaves=lists, dp_size=st.integers(1, 3), limit=st.integers(1, 60))
def test_no_micro_batch_of_several_rows_exceeds_its_ids(leaves: Leaves, dp_size: int, limit: int) -> None:
    data, trimmed = batch(leaves, len(leaves))
    try:
        shards = cut(data, trimmed, dp_size=dp_size, max_tokens=limit)
    except BatchError as error:
        rows = sum(map(len, leaves))
        assert rows < dp_size or (f"max_tokens={limit}" in str(error) and rows % dp_size)  # noqa: PT017
        return
    for shard in shards:
        for own in shard["micro_batch_indices"]:
            assert len(own) == 1 or sum(shard["total_lengths"][row] for row in own) <= limit


def test_uneven_leaves_give_equal_steps_on_each_rank() -> None:
    data, trimmed = batch([[4], [4, 4], [4, 4]], 3)
    shards = cut(data, trimmed, dp_size=2, micro_batch_size=1)
    assert [shard["num_microbatches"] for shard in shards] == [[2], [2]]
    assert sorted(len(shard["partition"]) for shard in shards) == [2, 3]


def test_no_micro_batch_has_more_rows_than_it_may_however_unlike_they_are() -> None:
    data, trimmed = batch([[300], [1], [1], [1], [1]], 5)
    (shard,) = cut(data, trimmed, dp_size=1, micro_batch_size=3)
    assert sorted(map(len, shard["micro_batch_indices"])) == [2, 3]


@pytest.mark.parametrize(("limit", "count"), [(1000, 1), (24, 1), (23, 2)])
def test_micro_batches_are_as_few_as_their_ids_let_there_be(limit: int, count: int) -> None:
    data, trimmed = batch([[4], [4], [4], [4]], 4)
    (shard,) = cut(data, trimmed, dp_size=1, max_tokens=limit)
    assert shard["num_microbatches"] == [count]


def test_a_limit_on_ids_lets_any_number_of_rows_together() -> None:
    data, trimmed = batch([[20], [1], [1], [1], [1]], 5)
    (shard,) = cut(data, trimmed, dp_size=1, max_tokens=22)
    assert sorted(map(len, shard["micro_batch_indices"])) == [1, 4]


@given(st.lists(st.integers(0, 100), min_size=1, max_size=40), st.integers(1, 8))
def test_parts_are_in_balance(weights: list[int], parts: int) -> None:
    if len(weights) < parts:
        return
    found = balanced(weights, parts)
    assert sorted(place for own in found for place in own) == list(range(len(weights)))
    assert all(found)
    sums = [sum(weights[place] for place in own) for own in found]
    best = max(math.ceil(sum(weights) / parts), *weights)
    assert max(sums) <= best * 4 / 3 + max(weights)


def test_the_heaviest_goes_first() -> None:
    assert balanced([1, 1, 2], 2) == [[2], [0, 1]]


@pytest.mark.parametrize("most", [2, 3])
def test_parts_hold_no_more_than_they_may(most: int) -> None:
    found = balanced([50, 1, 1, 1], 2, most=most)
    assert max(map(len, found)) == most


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ({"dp_size": 0}, "dp_size: 0"),
        ({"dp_size": None}, "dp_size: None"),
        ({"dp_size": 1, "micro_batch_size": 1.5}, r"micro_batch_size: 1\.5"),
        ({"dp_size": 1, "max_tokens": True}, "max_tokens: True"),
        ({"dp_size": 1, "max_tokens": 5, "micro_batch_size": 1}, "micro_batch_size: 1 beside max_tokens"),
    ],
)
def test_odd_sizes_are_refused_by_name(sizes: dict[str, Any], named: str) -> None:
    data, trimmed = batch([[1]], 1)
    with pytest.raises(BatchError, match=named):
        cut(data, trimmed, **sizes)
