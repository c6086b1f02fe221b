"""Columns for the trainer: the same whatever the order of rows, weighed by rollout."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.errors import AssemblyError, RewardError, RolloutIdentityError
from miles_sim.rollout.sample import AdapterRef, Sample, Status
from miles_sim.rollout.train_data import to_train_data


def row(index: int | None = 0, *, size: int = 2, **fields: Any) -> Sample:
    values: dict[str, Any] = {
        "group_index": 0,
        "tokens": list(range(3 + size)),
        "response_length": size,
        "loss_mask": [1] * size,
        "rollout_log_probs": [-0.5] * size,
        "status": Status.COMPLETED,
        "reward": 1.0,
    }
    return Sample(index=index, **{**values, **fields})


def aborted(index: int = 9, **fields: Any) -> Sample:
    """As `generate` hands it out where nothing was generated."""
    return Sample(index=index, group_index=0, status=Status.ABORTED, **fields)


def test_columns_are_miles() -> None:
    sample = row(5, rollout_id=0, loss_mask=[0, 1], weight_versions=["1"], train_metadata={"a": 1})
    sample.rollout_routed_experts = np.zeros((4, 1, 1), np.int32)
    data = to_train_data([sample])
    assert data["tokens"] == [[0, 1, 2, 3, 4]]
    assert data["response_lengths"] == [2]
    assert data["loss_masks"] == [[0, 1]]
    assert data["rollout_mask_sums"] == [1]
    assert data["rollout_ids"] == [0]
    assert data["sample_indices"] == [5]
    assert data["truncated"] == [0]
    assert data["rewards"] == data["raw_reward"] == [1.0]
    assert data["rollout_log_probs"] == [[-0.5, -0.5]]
    assert data["weight_versions"] == [["1"]]
    assert data["metadata"] == [{"a": 1}]
    assert data["spec_info"] == [sample.spec_info.to_dict()]
    assert data["prefix_cache_info"] == [sample.prefix_cache_info.to_dict()]
    assert "rollout_indexer_topk" not in data
    assert "teacher_log_probs" not in data


def test_samples_stay_as_they_are() -> None:
    sample = row(loss_mask=None, remove_sample=True)
    data = to_train_data([sample])
    assert data["loss_masks"] == [[0, 0]]
    assert sample.loss_mask is None
    data["tokens"][0].append(1)
    assert len(sample.tokens) == 5


def test_missing_mask_trains_the_whole_response() -> None:
    assert to_train_data([row(loss_mask=None)])["loss_masks"] == [[1, 1]]


@given(st.permutations(range(4)))
def test_order_of_rows_changes_only_the_order(order: list[int]) -> None:
    rows = [
        aborted(3),
        row(0, weight_versions=["1"], metadata={"raw_reward": 4.0}),
        row(1, reward=2.0, rollout_routed_experts=np.ones((4, 1, 2), np.int32), loss_mask=[0, 1]),
        row(2, train_metadata={"x": 1}, rollout_routed_experts=np.zeros((4, 1, 2), np.int32), teacher_log_probs=None),
    ]
    rows[1].rollout_routed_experts = np.zeros((4, 1, 2), np.int32)
    expected = to_train_data(rows, normalize="std")
    found = to_train_data([rows[n] for n in order], normalize="std")
    assert found.keys() == expected.keys()
    for name, column in expected.items():
        for place, n in enumerate(order):
            assert np.array_equal(found[name][place], column[n]), name


def test_logprobs_of_ids_that_train_nothing_are_zero_where_there_are_none() -> None:
    data = to_train_data([row(loss_mask=[0, 0], rollout_log_probs=None), row(index=1)])
    assert data["rollout_log_probs"] == [[0.0, 0.0], [-0.5, -0.5]]


def test_aborted_row_fills_every_column() -> None:
    rows = [aborted(), row(rollout_routed_experts=np.zeros((4, 2, 3), np.int32))]
    data = to_train_data(rows, normalize="std")
    assert data["rollout_log_probs"] == [[], [-0.5, -0.5]]
    assert data["rollout_routed_experts"][0].shape == (0, 2, 3)
    assert data["rewards"] == [0.0, 0.0]
    assert data["raw_reward"] == [0.0, 1.0]


def test_trainable_row_without_logprobs_is_refused_by_name() -> None:
    with pytest.raises(AssemblyError, match="row 1: rollout_log_probs: None"):
        to_train_data([row(0), row(1, rollout_log_probs=None)])


def test_row_of_no_rollout_is_refused_by_name() -> None:
    with pytest.raises(RolloutIdentityError, match=r"row 1: rollout_id: None, and index: None"):
        to_train_data([row(0), row(None)])


def test_lengths_that_disagree_are_refused() -> None:
    with pytest.raises(AssemblyError, match="loss_mask: 1 entries"):
        to_train_data([row(loss_mask=[1])])


def test_round_number_must_be_everywhere_or_nowhere() -> None:
    rows = [row(0), row(1, metadata={"round_number": 3})]
    with pytest.raises(AssemblyError, match=r"row 0: metadata\.round_number"):
        to_train_data(rows)
    rows[0].metadata["round_number"] = 2
    assert to_train_data(rows)["round_number"] == [2, 3]


rollout_lists = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=8)


@given(rollout_lists)
def test_mask_sums_are_those_of_the_rollout(rollouts: list[tuple[int, int]]) -> None:
    rows = [
        row(n, rollout_id=n, size=size + 1, reward=None)
        for n, (_, leaves) in enumerate(rollouts)
        for size in range(leaves)
    ]
    sums = to_train_data(rows)["rollout_mask_sums"]
    for sample, total in zip(rows, sums, strict=True):
        assert total == sum(other.response_length for other in rows if other.rollout_id == sample.rollout_id)


def test_equal_ids_of_other_prompts_do_not_mix() -> None:
    rows = [row(1, group_index=0, size=2), row(1, group_index=1, size=3)]
    assert to_train_data(rows)["rollout_mask_sums"] == [2, 3]


def test_rewards_are_absent_only_if_no_row_has_one() -> None:
    assert "rewards" not in to_train_data([row(reward=None)], normalize="std")
    with pytest.raises(RewardError, match="row 1: reward: None"):
        to_train_data([row(0), row(1, reward=None)])


def test_siblings_with_unequal_rewards_are_refused_unless_each_may_keep_its_own() -> None:
    rows = [row(0, rollout_id=0, reward=1.0), row(0, rollout_id=0, reward=3.0), row(1, reward=4.0)]
    with pytest.raises(RewardError, match=r"rollout 0: reward: rows \[0, 1\] have \[1\.0, 3\.0\]"):
        to_train_data(rows, normalize="mean")
    assert to_train_data(rows, normalize="mean", unequal="keep")["rewards"] == [-2.0, 0.0, 1.0]


def test_adapters_are_everywhere_or_nowhere() -> None:
    rows = [row(0, adapter=AdapterRef("a", 2)), row(1)]
    with pytest.raises(AssemblyError, match="row 1: adapter: None"):
        to_train_data(rows)
    rows[1].adapter = AdapterRef("b", 0)
    assert to_train_data(rows)["adapter_slots"] == [2, 0]


def test_raw_reward_of_the_metadata_goes_first_and_is_a_number() -> None:
    rows = [row(0, metadata={"raw_reward": 4}), row(1, reward=2.0)]
    assert to_train_data(rows)["raw_reward"] == [4.0, 2.0]
    rows[0].metadata["raw_reward"] = "4"
    with pytest.raises(RewardError, match="row 0: raw_reward: '4'"):
        to_train_data(rows)


def test_an_empty_batch_has_empty_columns() -> None:
    data = to_train_data([], normalize="std")
    assert data["tokens"] == data["rollout_ids"] == data["rollout_mask_sums"] == []
    assert "rewards" not in data


def test_a_batch_of_placeholders_converts() -> None:
    data = to_train_data([aborted(0), aborted(1)], normalize="std", reward_key="a")
    assert data["loss_masks"] == [[], []]
    assert "rewards" not in data


def test_what_media_need_stands_in_a_column_of_its_own() -> None:
    rows = [row(0, multimodal_train_inputs={"pixels": 1}), row(1)]
    data = to_train_data(rows)
    assert data["multimodal_train_inputs"] == [{"pixels": 1}, None]
    assert "metadata" not in data


def test_rows_of_a_sample_that_has_none_are_zeros_of_the_same_kind() -> None:
    data = to_train_data([aborted(tokens=[1, 2, 3]), row(rollout_routed_experts=np.ones((4, 2, 3), np.int32))])
    zeros = data["rollout_routed_experts"][0]
    assert (zeros.shape, zeros.dtype, zeros.any()) == ((2, 2, 3), np.int32, False)


def test_columns_are_the_trainers_own_to_change() -> None:
    sample = row(0, weight_versions=["1"])
    data = to_train_data([sample])
    data["rollout_log_probs"][0].append(0.0)
    data["loss_masks"][0].append(1)
    data["weight_versions"][0].append("2")
    assert (sample.rollout_log_probs, sample.loss_mask, sample.weight_versions) == ([-0.5, -0.5], [1, 1], ["1"])


def test_a_sample_out_of_step_is_refused_by_its_row() -> None:
    with pytest.raises(AssemblyError, match=r"^row 1: loss_mask: 1 entries for response_length 2$"):
        to_train_data([row(0), row(1, loss_mask=[1])])
