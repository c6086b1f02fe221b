"""Ids that the template would write otherwise are told, sampled ones left aside."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.mismatch import template_mismatch
from miles_sim.rollout.record import Record


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


def test_only_what_trails_is_left_out_of_the_comparison(forest: Any) -> None:
    first = replace(forest.grow().record, prompt_ids=[9], output_ids=[7])
    second = replace(first, seq=1, parent=0, prompt_ids=[9, 7, 5, 1], output_ids=[8])
    for rendered, faults in (([9, 7, 5], 0), ([9, 7, 5, 1], 0), ([9, 7, 6], 1)):
        found = template_mismatch([first, second], Spelled(rendered, frozenset({1})))  # type: ignore[arg-type]
        assert len(found) == faults


@dataclass(frozen=True)
class Spelled:
    """A tokenizer whose rendering of everything is `ids`."""

    ids: list[int]
    trailing_ids: frozenset[int] = frozenset()

    def render(self, messages: Any, **options: Any) -> list[int]:
        return self.ids

    def decode(self, ids: Any) -> str:
        return " ".join(map(str, ids))


IDS = st.lists(st.sampled_from([0, 1, 256, 65536, 257]), min_size=1, max_size=5)


@given(first=IDS, second=IDS, rendered=IDS)
def test_what_stands_between_is_found_as_ids_never_across_the_bytes_of_two(
    first: list[int], second: list[int], rendered: list[int]
) -> None:
    """Against a search by hand."""
    root = Record(0, None, first, [7], [0.0], "stop", "a", {}, [], {})
    path = [root, replace(root, seq=1, parent=0, prompt_ids=[*first, 7, *second])]
    canonical = [*first, *rendered]
    held = any(rendered[n : n + len(second)] == second for n in range(len(rendered)))
    faults = template_mismatch(path, Spelled(canonical))  # type: ignore[arg-type]
    assert bool(faults) is not held
    if faults:
        at = len(first)
        assert faults == [
            {
                "type": "non_assistant_text",
                "segment_index": 1,
                "expected_text": " ".join(map(str, canonical[at : at + len(second)])),
                "actual_text": " ".join(map(str, second)),
                "detail": f"the rendering has no such ids at {at} or later",
            }
        ]


def test_template_that_fails_costs_no_sample(forest: Any) -> None:
    record = replace(forest.grow().record, request_messages=[{"role": None}])
    (fault,) = template_mismatch([record], forest.tokenizer)
    assert fault.pop("detail").split(":")[0].endswith("Error")
    assert fault == {"type": "render_failed", "segment_index": -1, "expected_text": "", "actual_text": ""}


def test_a_first_prompt_is_not_found_across_the_bytes_of_two_ids_either() -> None:
    first = Record(0, None, [1], [7], [0.0], "stop", "a", {}, [], {})
    (fault,) = template_mismatch([first], Spelled([256, 0]))  # type: ignore[arg-type]
    assert (fault["segment_index"], fault["expected_text"], fault["actual_text"]) == (0, "256", "1")


def test_behind_the_bytes_of_two_ids_the_search_goes_on() -> None:
    first = Record(0, None, [9], [7], [0.0], "stop", "a", {}, [], {})
    path = [first, replace(first, seq=1, parent=0, prompt_ids=[9, 7, 1])]
    assert template_mismatch(path, Spelled([9, 256, 0, 1])) == []  # type: ignore[arg-type]
    path = [first, replace(first, seq=1, parent=0, prompt_ids=[9, 7, 0])]
    assert template_mismatch(path, Spelled([9, 256, 0])) == []  # type: ignore[arg-type]
    assert template_mismatch(path, Spelled([9, 5, 0])) == []  # type: ignore[arg-type]


def test_what_stands_only_in_what_was_passed_is_not_found() -> None:
    first = Record(0, None, [1, 2, 3, 4], [7], [0.0], "stop", "a", {}, [], {})
    path = [first, replace(first, seq=1, parent=0, prompt_ids=[1, 2, 3, 4, 7, 4])]
    (fault,) = template_mismatch(path, Spelled([1, 2, 3, 4, 7, 6]))  # type: ignore[arg-type]
    assert (fault["segment_index"], fault["expected_text"], fault["actual_text"]) == (1, "7", "4")


def test_what_a_request_told_the_template_goes_into_the_canonical_rendering(forest: Any) -> None:
    told: list[Any] = []

    class Noting(Spelled):
        def render(self, messages: Any, **options: Any) -> list[int]:
            told.append(options)
            return super().render(messages, **options)

    record = forest.grow().record
    tools = [{"type": "function"}]
    for options in ({"thinking": False}, {}):
        template_mismatch([replace(record, tools=tools, request_options=options)], Noting([1]))  # type: ignore[arg-type]
    assert [one["template_options"] for one in told] == [{"thinking": False}, None]
    assert all(one["tools"] == tools and one["add_generation_prompt"] is False for one in told)
