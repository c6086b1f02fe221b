"""A session's records become samples and metadata, linear and tree alike."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.collect import collect
from miles_sim.rollout.errors import AssemblyError


@given(data=st.data())
def test_linear_session_is_the_same_under_both_versions(
    data: st.DataObject, forests: Callable[..., Any], settings: Any, v1: Any
) -> None:
    forest = forests(data.draw, linear=True)
    limit = data.draw(st.none() | st.integers(20, 200))
    options: dict[str, Any] = {"tokenizer": forest.tokenizer, "max_seq_len": limit, "agent_metadata": {"reward": 1.0}}
    tree = collect(forest.records, settings=settings, **options)
    linear = collect(forest.records, settings=v1, **options)
    assert linear.empty_reason == tree.empty_reason
    for sample in tree.samples:
        del sample.metadata["leaf"]
    assert linear.samples == tree.samples
    del tree.session_metadata["tree"]
    assert linear.session_metadata == tree.session_metadata


@given(data=st.data())
def test_order_in_which_records_come_does_not_matter(
    data: st.DataObject, forests: Callable[..., Any], settings: Any
) -> None:
    forest = forests(data.draw)
    options: dict[str, Any] = {"tokenizer": forest.tokenizer, "max_seq_len": None, "agent_metadata": None}
    shuffled = data.draw(st.permutations(forest.records))
    assert collect(shuffled, settings=settings, **options) == collect(forest.records, settings=settings, **options)


@given(data=st.data())
def test_tree_is_the_forest(data: st.DataObject, forests: Callable[..., Any], settings: Any) -> None:
    forest = forests(data.draw)
    keep = replace(settings, sample_picker="keep_all")
    collected = collect(
        forest.records, settings=keep, tokenizer=forest.tokenizer, max_seq_len=None, agent_metadata=None
    )
    tree = collected.session_metadata["tree"]
    paths = [[node.number for node in leaf.path] for leaf in forest.leaves]
    assert [leaf["path_node_ids"] for leaf in tree["leaves"]] == paths
    for row, node in zip(tree["nodes"], forest.nodes, strict=True):
        start, end = row["completion_span"]
        assert (row["id"], row["parent"], row["response_id"]) == (
            node.number,
            node.record.parent,
            node.record.response_id,
        )
        assert (start, end - start) == (len(node.record.prompt_ids), len(node.output))
    ends: dict[int, Any] = {}
    for leaf in forest.leaves:  # of those that end early in one generation, the earliest
        ends.setdefault(forest.usable(leaf.path)[-1].number, leaf)
    for sample, leaf in zip(collected.samples, ends.values(), strict=True):
        assert sample.metadata["leaf"] == {
            "node_id": leaf.number,
            "parent": leaf.record.parent,
            "path_node_ids": [node.number for node in leaf.path],
            "response_id": leaf.record.response_id,
        }
        assert sample.metadata["accumulated_token_ids"] == [*leaf.record.prompt_ids, *leaf.output]
        assert "tito_session_mismatch" not in sample.metadata
    latest = forest.nodes[-1]
    assert collected.session_metadata["accumulated_token_ids"] == [*latest.record.prompt_ids, *latest.output]
    assert collected.session_metadata["max_trim_tokens"] == forest.tokenizer.max_trim_tokens
    assert "agent" not in collected.session_metadata


def test_no_records_and_nothing_that_fits_are_told_apart(forest: Any, settings: Any) -> None:
    options: dict[str, Any] = {"settings": settings, "tokenizer": forest.tokenizer, "agent_metadata": {"a": 1}}
    empty = collect([], max_seq_len=None, **options)
    assert (empty.samples, empty.empty_reason) == ([], "no_records")
    assert empty.session_metadata["tree"] == {"nodes": [], "leaves": []}
    prompt = forest.grow().record.prompt_ids
    assert collect(forest.records, max_seq_len=len(prompt), **options).empty_reason == "all_truncated"
    assert collect(forest.records, max_seq_len=len(prompt) + 1, **options).empty_reason is None


def test_only_the_leaf_that_does_not_fit_is_left_out(forest: Any, settings: Any) -> None:
    short = forest.grow(text="s")
    forest.grow(text="long " * 40)
    collected = collect(
        forest.records, settings=settings, tokenizer=forest.tokenizer, max_seq_len=100, agent_metadata=None
    )
    assert [sample.metadata["leaf"]["node_id"] for sample in collected.samples] == [short.number]


def test_picking_none_is_no_truncation(forest: Any, settings: Any) -> None:
    forest.grow()
    none = replace(settings, sample_picker=lambda samples, session_metadata: [])
    options: dict[str, Any] = {"tokenizer": forest.tokenizer, "max_seq_len": None, "agent_metadata": None}
    assert collect(forest.records, settings=none, **options).empty_reason == "none_picked"


def test_records_that_form_no_tree_are_refused(forest: Any, settings: Any) -> None:
    first = forest.grow().record
    options: dict[str, Any] = {"settings": settings, "tokenizer": forest.tokenizer, "max_seq_len": None}
    for broken in ([replace(first, parent=5)], [replace(first, parent=0)], [first, first]):
        with pytest.raises(AssemblyError, match=r"record 0: (parent|seq)"):
            collect(broken, agent_metadata=None, **options)


def test_mismatch_is_told_only_if_there_is_one(forest: Any, settings: Any) -> None:
    record = replace(forest.grow().record, tools=[{"type": "function"}])
    options: dict[str, Any] = {"settings": settings, "tokenizer": forest.tokenizer, "max_seq_len": None}
    (sample,) = collect([record], agent_metadata=None, **options).samples
    assert [entry["type"] for entry in sample.metadata["tito_session_mismatch"]] == ["non_assistant_text"]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"agent_metadata": [1]}, "^agent metadata: list is not a dict or None$"),
        ({"agent_metadata": {"a": {"b": float("nan")}}}, r"^agent metadata\.a\.b: nan is not a finite number$"),
        ({"max_seq_len": 0}, "^max_seq_len: 0 is not None or a whole number of at least 1$"),
        ({"max_seq_len": True}, "^max_seq_len: True is not None"),
    ],
)
def test_what_cannot_be_collected_with_is_refused_by_name(
    forest: Any, settings: Any, asked: dict[str, Any], named: str
) -> None:
    options: dict[str, Any] = {"max_seq_len": None, "agent_metadata": None, **asked}
    with pytest.raises(AssemblyError, match=named):
        collect(forest.records, settings=settings, tokenizer=forest.tokenizer, **options)


def test_what_the_agent_returned_stands_beside_the_tree_and_reaches_linear_sessions_too(
    forest: Any, settings: Any, v1: Any
) -> None:
    forest.grow()
    for own in (settings, v1):
        found = collect(
            forest.records,
            settings=own,
            tokenizer=forest.tokenizer,
            max_seq_len=None,
            agent_metadata={"reward": 0.5, "note": "n"},
        )
        assert found.session_metadata["agent"] == {"reward": 0.5, "note": "n"}
        assert [(s.reward, s.metadata["note"]) for s in found.samples] == [(0.5, "n")]


def test_leaves_whose_prompt_fills_the_limit_are_told_by_what_they_sampled(forest: Any, settings: Any) -> None:
    root = forest.grow(text="long " * 40, sampled=3)
    leaf = forest.grow(root, sampled=2)
    found = collect(forest.records, settings=settings, tokenizer=forest.tokenizer, max_seq_len=50, agent_metadata=None)
    sampled = len(root.output) + len(leaf.output)
    assert found.session_metadata["unfit_leaves"] == [{"node_id": leaf.number, "turns": 2, "tokens": sampled}]
