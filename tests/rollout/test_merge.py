"""Turns as samples of their own: the merge agrees with assembly, and with what miles' fold gives."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.assembly import assemble
from miles_sim.rollout.counters import SpecInfo
from miles_sim.rollout.errors import AssemblyError
from miles_sim.rollout.merge import SHARED, merge_samples
from miles_sim.rollout.sample import Sample, Status
from miles_sim.tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()


def turn(before: Sample | None = None, *, gap: int = 2, reply: int = 2, **fields: Any) -> Sample:
    tokens = [*(before.tokens if before else []), *range(97, 97 + gap), *range(65, 65 + reply)]
    values: dict[str, Any] = {
        "response": TOKENIZER.decode(tokens[len(tokens) - reply :]),
        "loss_mask": [1] * reply,
        "rollout_log_probs": [-0.5] * reply,
        "status": Status.COMPLETED,
    }
    return Sample(tokens=tokens, response_length=reply, **{**values, **fields})


@given(data=st.data())
def test_merging_single_turns_equals_assembling_the_path(
    data: st.DataObject, forests: Callable[..., Any], settings: Any
) -> None:
    forest = forests(data.draw)
    leaf = data.draw(st.sampled_from(forest.leaves))
    path = forest.usable(leaf.path)
    turns = []
    for node, kept in zip(path, forest.kept(path), strict=True):
        single = assemble([node.record], settings=settings, tokenizer=forest.tokenizer, max_seq_len=None)
        assert single is not None
        trim = len(node.output) - len(kept)
        single.tokens = single.tokens[: len(single.tokens) - trim]
        single.response_length = len(kept)
        single.response = forest.tokenizer.decode(kept)
        single.loss_mask = [1] * len(kept)
        single.rollout_log_probs = list(node.record.log_probs[: len(kept)])
        turns.append(single)
    merged = merge_samples(turns, forest.tokenizer)
    records = [node.record for node in path]
    assembled = assemble(records, settings=settings, tokenizer=forest.tokenizer, max_seq_len=None)
    assert assembled is not None
    assembled.metadata = merged.metadata = {}
    assert merged == assembled


def test_what_stands_between_is_masked() -> None:
    first = turn()
    merged = merge_samples([first, turn(first, gap=3)], TOKENIZER)
    assert merged.loss_mask == [1, 1, 0, 0, 0, 1, 1]
    assert merged.rollout_log_probs == [-0.5, -0.5, 0.0, 0.0, 0.0, -0.5, -0.5]
    assert merged.response == "ABabcAB"


def test_the_last_of_many_turns_has_all_ids_and_says_how_it_ended() -> None:
    first = turn()
    second = turn(first)
    merged = merge_samples([first, second, turn(second, status=Status.TRUNCATED)], TOKENIZER)
    assert (len(merged.tokens), merged.status) == (12, Status.TRUNCATED)


def test_missing_masks_and_logprobs_take_miles_defaults() -> None:
    first = turn(loss_mask=None, rollout_log_probs=None)
    merged = merge_samples([first, turn(first)], TOKENIZER)
    assert merged.loss_mask == [1, 1, 0, 0, 1, 1]
    assert merged.rollout_log_probs == [0.0, 0.0, 0.0, 0.0, -0.5, -0.5]


def test_inputs_are_untouched_and_unshared() -> None:
    first = turn(metadata={"a": []})
    turns = [first, turn(first, metadata={"a": []})]
    before = copy.deepcopy(turns)
    merged = merge_samples(turns, TOKENIZER)
    merged.metadata["a"].append(1)
    merged.tokens.append(1)
    assert turns == before
    alone = merge_samples(turns[:1], TOKENIZER)
    assert alone == turns[0]
    assert alone.tokens is not turns[0].tokens


@pytest.mark.parametrize("status", [Status.TRUNCATED, Status.ABORTED])
def test_what_follows_an_early_end_is_dropped_visibly(status: Status) -> None:
    first = turn()
    second = turn(first, status=status)
    merged = merge_samples([first, second, turn(second)], TOKENIZER)
    assert merged.tokens == second.tokens
    assert merged.status is status
    assert merged.metadata["dropped"] == {f"after_{status.value}": {"turns": 1, "tokens": 2}}


def test_optional_values_per_id_are_spread() -> None:
    first = turn(teacher_log_probs=[-1.0, -2.0], metadata={"opd_student_top_logprobs": [[1], [2]]})
    second = turn(first, opd_reverse_kl=[0.1, 0.2], metadata={"opd_student_top_logprobs": [[3], [4]]})
    merged = merge_samples([first, second], TOKENIZER)
    assert merged.teacher_log_probs == [-1.0, -2.0, 0.0, 0.0, 0.0, 0.0]
    assert merged.opd_reverse_kl == [0.0, 0.0, 0.0, 0.0, 0.1, 0.2]
    assert merged.metadata["opd_student_top_logprobs"] == [[1], [2], [], [], [3], [4]]
    assert merged.loss_mask == [1, 1, 0, 0, 1, 1]


def test_top_logprobs_of_one_turn_only_are_refused() -> None:
    first = turn(metadata={"opd_student_top_logprobs": [[1], [2]]})
    with pytest.raises(AssemblyError, match="opd_student_top_logprobs: missing in turn 1"):
        merge_samples([first, turn(first)], TOKENIZER)


def test_lifecycle_and_messages_run_on() -> None:
    first = turn(metadata={"lifecycle": {"turn": 1}, "messages": [1]})
    second = turn(first, metadata={"lifecycle": [{"turn": 2}], "messages": [1, 2]})
    merged = merge_samples([first, second], TOKENIZER)
    assert merged.metadata == {"lifecycle": [{"turn": 1}, {"turn": 2}], "messages": [1, 2]}


def test_counters_and_versions_add_up() -> None:
    first = turn(spec_info=SpecInfo(1, 2, 1, 2), weight_versions=["1"])
    merged = merge_samples([first, turn(first, spec_info=SpecInfo(3, 4, 1, 2), weight_versions=["2"])], TOKENIZER)
    assert merged.spec_info == SpecInfo(4, 6, 2, 4)
    assert merged.weight_versions == ["1", "2"]


def test_rows_of_a_turn_stay_its_own() -> None:
    first = turn(rollout_routed_experts=np.full((3, 1, 1), 1, np.int32))
    second = turn(first, rollout_routed_experts=np.full((7, 1, 1), 2, np.int32))
    rows = merge_samples([first, second], TOKENIZER).rollout_routed_experts
    assert rows is not None
    assert rows.ravel().tolist() == [1, 1, 1, 2, 2, 2, 2]


def test_rows_of_two_shapes_are_refused_by_turn_and_shape() -> None:
    first = turn(rollout_routed_experts=np.zeros((3, 1, 2), np.int32))
    second = turn(first, rollout_routed_experts=np.zeros((7, 1, 3), np.int32))
    reason = (
        r"^rollout_routed_experts of turn 1: rows of shape \(1, 3\), but \(1, 2\) in rollout_routed_experts of turn 0$"
    )
    with pytest.raises(AssemblyError, match=reason):
        merge_samples([first, second], TOKENIZER)
    gap = merge_samples([first, turn(first)], TOKENIZER)
    assert gap.metadata["dropped"] == {"replay_gap": {"turns": 1, "tokens": 2}}


@pytest.mark.parametrize("field", SHARED)
def test_turns_of_different_rollouts_are_refused_by_name(field: str) -> None:
    first = turn()
    with pytest.raises(AssemblyError, match=field):
        merge_samples([first, turn(first, **{field: "other"})], TOKENIZER)


def test_turn_that_does_not_continue_is_refused() -> None:
    first = turn()
    drifted = turn(first)
    drifted.tokens[1] += 1
    late = turn(drifted)
    late.tokens[1] -= 1
    for turns in ([first, drifted], [first, drifted, late], [first, turn(first), turn(drifted)]):
        with pytest.raises(AssemblyError, match="tokens"):
            merge_samples(turns, TOKENIZER)


def test_turns_with_nothing_between_are_refused() -> None:
    first = turn()
    with pytest.raises(AssemblyError, match="no id between"):
        merge_samples([first, turn(first, gap=0)], TOKENIZER)


def test_metadata_and_prompt_must_agree() -> None:
    first = turn(prompt="a", metadata={"k": 1})
    with pytest.raises(AssemblyError, match="metadata"):
        merge_samples([first, turn(first, prompt="ab", metadata={"k": 2})], TOKENIZER)
    with pytest.raises(AssemblyError, match="prompt"):
        merge_samples([first, turn(first, prompt="b", metadata={"k": 1})], TOKENIZER)


def test_broken_turn_and_no_turns_are_refused() -> None:
    with pytest.raises(AssemblyError, match="loss_mask"):
        merge_samples([turn(loss_mask=[1])], TOKENIZER)
    with pytest.raises(AssemblyError, match="samples: empty"):
        merge_samples([], TOKENIZER)


def test_a_merged_sample_shares_nothing_however_deep() -> None:
    def own() -> dict[str, Any]:
        return {
            "prompt": [{"role": "user", "content": ["a"]}],
            "label": {"deep": [1]},
            "multimodal_train_inputs": {"pixels": np.zeros(2)},
            "metadata": {"messages": [{"content": ["x"]}], "lifecycle": [{"span": [0]}], "k": {"deep": [1]}},
        }

    first = turn(**own())
    turns = [first, turn(first, **own())]
    before = copy.deepcopy([sample.to_dict() for sample in turns])
    merged = merge_samples(turns, TOKENIZER)
    merged.prompt[0]["content"].append("b")  # type: ignore[index]
    merged.label["deep"].append(2)
    merged.multimodal_train_inputs["pixels"][0] = 1  # type: ignore[index]
    merged.metadata["messages"][0]["content"].append("y")
    merged.metadata["lifecycle"][0]["span"].append(1)
    merged.metadata["k"]["deep"].append(2)
    assert repr([sample.to_dict() for sample in turns]) == repr(before)


@pytest.mark.parametrize("other", [{"pixels": np.ones(2)}, {"pixels": np.zeros(3)}, {"other": np.zeros(2)}, None, {}])
def test_arrays_are_compared_by_what_they_hold(other: Any) -> None:
    first = turn(multimodal_train_inputs={"pixels": np.zeros(2)})
    alike = turn(first, multimodal_train_inputs={"pixels": np.zeros(2)})
    assert merge_samples([first, alike], TOKENIZER).multimodal_train_inputs == {"pixels": pytest.approx([0, 0])}
    with pytest.raises(
        AssemblyError, match=r"^multimodal_train_inputs: .* of turn 1 differs from .* of the turn before"
    ):
        merge_samples([first, turn(first, multimodal_train_inputs=other)], TOKENIZER)


def test_what_does_not_fit_is_named_with_its_turn() -> None:
    first = turn(prompt="a", metadata={"k": 1})
    second = turn(first, prompt="ab", metadata={"k": 1})
    third = {"prompt": "abc", "metadata": {"k": 1}}
    for change, named in (
        ({"prompt": "b"}, r"^prompt: turn 2's does not begin with that of the turn before$"),
        ({"metadata": {"k": 2}}, r"^metadata: \{'k': 2\} of turn 2 differs from \{'k': 1\}$"),
        ({"gap": 0}, r"^tokens: turn 2 has no id between the two responses$"),
        ({"label": "l"}, r"^label: 'l' of turn 2 differs from None of the turn before$"),
    ):
        with pytest.raises(AssemblyError, match=named):
            merge_samples([first, second, turn(second, **{**third, **change})], TOKENIZER)
    with pytest.raises(AssemblyError, match=r"^samples\[1\]: dict is not a Sample$"):
        merge_samples([first, {}], TOKENIZER)  # type: ignore[list-item]


def test_top_logprobs_of_another_length_are_refused_with_both() -> None:
    first = turn(metadata={"opd_student_top_logprobs": [[1], [2]]})
    second = turn(first, metadata={"opd_student_top_logprobs": [[1]]})
    with pytest.raises(
        AssemblyError, match=r"^metadata\.opd_student_top_logprobs: 1 entries in turn 1, response_length 2$"
    ):
        merge_samples([first, second], TOKENIZER)


def test_the_last_turns_messages_are_the_conversation() -> None:
    first = turn(metadata={"messages": [1]})
    second = turn(first, metadata={"messages": [1, 2]})
    third = turn(second, metadata={"messages": [1, 2, 3]})
    assert merge_samples([first, second, third], TOKENIZER).metadata["messages"] == [1, 2, 3]


def test_an_array_equals_nothing_but_an_array() -> None:
    first = turn(label=np.zeros(2))
    for other in ([0.0, 1.0], "x"):
        with pytest.raises(AssemblyError, match=r"^label: "):
            merge_samples([first, turn(first, label=other)], TOKENIZER)
