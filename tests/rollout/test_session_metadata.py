"""What a session tells of its tree: one row a generation, and enough in it to tell a retry from a question."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.session_metadata import session_metadata


def rows(forest: Any) -> list[dict[str, Any]]:
    told = session_metadata(forest.records, session="v2", max_trim_tokens=1)
    nodes: list[dict[str, Any]] = told["tree"]["nodes"]
    return nodes


def test_a_row_tells_its_generation_whole(forest: Any) -> None:
    root = forest.grow(sampled=3)
    cut = forest.grow(root, sampled=2, finish="length", twins=frozenset({5, 3}))
    start = len(cut.record.prompt_ids)
    told = rows(forest)[1]
    assert isinstance(told.pop("asked"), str)
    assert told == {
        "id": 1,
        "parent": 0,
        "seq": 1,
        "truncated": True,
        "finish_reason": "length",
        "completion_span": [start, start + 2],
        "num_tokens": start + 2,
        "response_id": cut.record.response_id,
        "concurrent_with": [3, 5],
    }
    assert rows(forest)[0]["parent"] is None
    assert rows(forest)[0]["truncated"] is False


@given(data=st.data())
def test_siblings_have_one_word_for_one_question_and_two_for_two(
    data: st.DataObject, forests: Callable[..., Any]
) -> None:
    """Roots are siblings too; what was replied is no part of a question."""
    forest = forests(data.draw)
    told = rows(forest)
    for a in forest.nodes:
        for b in forest.nodes:
            if a.parent is b.parent:
                same = (a.role, a.text) == (b.role, b.text)
                assert (told[a.number]["asked"] == told[b.number]["asked"]) is same


def test_first_questions_that_differ_in_their_first_id_alone_are_two(forest: Any) -> None:
    record = forest.grow().record
    other = replace(record, seq=1, prompt_ids=(9, *record.prompt_ids[1:]))
    told = session_metadata([record, other], session="v2", max_trim_tokens=1)["tree"]["nodes"]
    assert told[0]["asked"] != told[1]["asked"]


def test_a_session_tells_its_latest_ids_and_a_tree_only_where_it_is_one(forest: Any) -> None:
    last = forest.grow(forest.grow(), text="more").record
    ids = [*last.prompt_ids, *last.output_ids]
    linear = session_metadata(forest.records, session="v1", max_trim_tokens=3)
    assert linear == {"max_trim_tokens": 3, "accumulated_token_ids": ids}
    tree = session_metadata(forest.records, session="v2", max_trim_tokens=3)
    assert tree.pop("tree")["leaves"] == [{"node_id": 1, "path_node_ids": [0, 1]}]
    assert tree == linear
    empty = {"nodes": [], "leaves": []}
    assert session_metadata([], session="v2", max_trim_tokens=0) == {
        "max_trim_tokens": 0, "accumulated_token_ids": [], "tree": empty
    }  # fmt: skip
