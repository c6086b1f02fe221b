"""Ids that the template would write otherwise are told, sampled ones left aside."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.mismatch import template_mismatch


@given(data=st.data())
def test_sound_paths_have_none(data: st.DataObject, forests: Callable[..., Any]) -> None:
    forest = forests(data.draw)
    for leaf in forest.leaves:
        assert template_mismatch([node.record for node in leaf.path], forest.tokenizer) == []


@given(data=st.data())
def test_an_observation_rendered_otherwise_is_told(data: st.DataObject, forests: Callable[..., Any]) -> None:
    forest = forests(data.draw, finishes=("stop", "tool_calls"), linear=True)
    records = [node.record for node in forest.nodes]
    victim = data.draw(st.integers(0, len(records) - 1))
    ids = list(records[victim].prompt_ids)
    ids.insert(len(ids) - 1, 64)  # a stray id just before the reply
    records[victim] = replace(records[victim], prompt_ids=ids)
    path = records[: victim + 1]
    (fault,) = template_mismatch(path, forest.tokenizer)
    assert (fault["type"], fault["segment_index"]) == ("non_assistant_text", victim)


def test_changed_tools_are_told(forest: Any) -> None:
    record = replace(forest.grow().record, tools=[{"type": "function"}])
    assert template_mismatch([record], forest.tokenizer)[0]["segment_index"] == 0


def test_template_that_fails_costs_no_sample(forest: Any) -> None:
    record = replace(forest.grow().record, request_messages=[{"role": None}])
    assert template_mismatch([record], forest.tokenizer)[0]["type"] == "render_failed"
