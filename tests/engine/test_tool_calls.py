"""Tool calls are found, and not found, as the releases' parser does."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.engine.formats import FORMATS
from miles_sim.engine.profiles import load
from miles_sim.engine.tool_calls import ParsedCall, call_number, parse
from miles_sim.reply import ToolCall

DROPS, KEEPS = load("sglang-0.5.16").chat, load("miles-rl-0.0.2").chat
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
GOOD = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def stop() -> dict[str, Any]:
    return {"type": "stop", "matched": 2}


def test_a_call_is_taken_out_of_the_text_and_hides_the_stop() -> None:
    parsed = parse(f"Let me see.\n{GOOD}", stop(), TOOLS, DROPS)
    assert parsed.text == "Let me see."
    assert parsed.calls == (ParsedCall("get_weather", '{"city": "Paris"}'),)
    assert parsed.reason == {"type": "tool_calls", "matched": None}


def test_the_reason_that_was_given_is_not_changed() -> None:
    reason = stop()
    parse(GOOD, reason, TOOLS, DROPS)
    assert reason == stop()


@pytest.mark.parametrize("kind", ["length", "abort"])
def test_a_cut_reply_keeps_its_reason_beside_its_calls(kind: str) -> None:
    parsed = parse(GOOD, {"type": kind}, TOOLS, DROPS)
    assert parsed.calls
    assert parsed.reason == {"type": kind}


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("get_weather", "nope"),
        GOOD.removesuffix("\n</tool_call>"),
        GOOD.replace("}}", "}"),
    ],
    ids=["unknown function", "no end", "no JSON"],
)
def test_releases_differ_in_a_block_without_a_valid_call(text: str) -> None:
    kept, dropped = parse(text, stop(), TOOLS, KEEPS), parse(text, stop(), TOOLS, DROPS)
    assert (kept.text, kept.calls, kept.reason) == (text, (), {"type": "tool_calls", "matched": None})
    assert (dropped.text, dropped.calls, dropped.reason) == ("", None, stop())


def test_json_that_is_no_object_leaves_the_text_as_it_is() -> None:
    text = "<tool_call>\n7\n</tool_call>"
    assert parse(text, stop(), TOOLS, KEEPS).reason["type"] == "tool_calls"
    assert parse(text, stop(), TOOLS, DROPS).reason == stop()
    assert parse(text, stop(), TOOLS, DROPS).text == text


def test_a_valid_call_counts_beside_a_broken_one() -> None:
    parsed = parse(f"{GOOD}\n{GOOD.replace('get_weather', 'nope')}", stop(), TOOLS, DROPS)
    assert parsed.calls is not None
    assert len(parsed.calls) == 1


def test_text_without_a_block_is_left_alone() -> None:
    parsed = parse(" plain ", stop(), TOOLS, DROPS)
    assert (parsed.text, parsed.calls, parsed.reason) == (" plain ", None, stop())


def test_the_index_of_a_call_follows_the_profile() -> None:
    call = ParsedCall("get_weather", "{}", tool=4)
    assert [call_number(call, n, DROPS) for n in range(3)] == [4, 4, 4]
    assert [call_number(call, n, DROPS.model_copy(update={"tool_call_index": "position"})) for n in range(3)] == [
        0,
        1,
        2,
    ]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(arguments=st.dictionaries(st.text(max_size=5), values, min_size=1, max_size=3), text=st.text("ab ", max_size=5))
def test_what_the_model_spells_is_what_is_parsed(arguments: dict[str, Any], text: str) -> None:
    if "</tool_call>" in json.dumps(arguments) or "parameters" in arguments:
        return
    spelled = text + FORMATS["qwen25"].spell(
        [ToolCall(name="get_weather", arguments=arguments)] * 2, after_text=bool(text), calls_before=0
    )
    parsed = parse(spelled, stop(), TOOLS, DROPS)
    assert parsed.text == text.strip()
    assert parsed.calls is not None
    assert [json.loads(call.arguments) for call in parsed.calls] == [arguments, arguments]
