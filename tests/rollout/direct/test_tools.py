"""Tool calls: found in text, run in order, answered whatever the model spelled."""

from dataclasses import dataclass
from typing import Any

import pytest

from miles_sim.rollout.direct.tools import Call, TaggedJsonParser, Tools, answer_calls
from miles_sim.rollout.errors import SettingsError, ToolError


@dataclass
class Item:
    """As SGLang's parsers give a call."""

    name: str | None
    parameters: str
    tool_index: int = 0


async def echo(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}{arguments}"


def test_calls_are_found_in_order_and_the_text_beside_them_stays() -> None:
    text = 'a <tool_call>\n{"name": "f", "arguments": {"x": "ü"}}\n</tool_call> b <tool_call>{"name": "g"}</tool_call>'
    beside, calls = TaggedJsonParser().parse_non_stream(text)
    assert beside == "a  b"
    assert list(calls) == [Call("f", '{"x": "ü"}'), Call("g", "{}")]


@pytest.mark.parametrize(
    "text",
    [
        "no call",
        "<tool_call>{</tool_call>",
        "<tool_call>[]</tool_call>",
        '<tool_call>{"name": 3}</tool_call>',
        '<tool_call>{"name": "f"}',
        "<tool_call>" + "[" * 100_000 + "</tool_call>",
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert TaggedJsonParser().parse_non_stream(text) == (text, [])


async def test_answers_are_messages_with_ids_that_repeat() -> None:
    calls = [Item("f", '{"x": 1}'), Item("g", "")]
    for _ in range(2):
        assert await answer_calls(calls, echo, turn=4) == [
            {"role": "tool", "tool_call_id": "call_4_0", "content": "f{'x': 1}", "name": "f"},
            {"role": "tool", "tool_call_id": "call_4_1", "content": "g{}", "name": "g"},
        ]


@pytest.mark.parametrize(
    ("parameters", "said"), [("{", "not JSON"), ("[1]", "list, not an object"), ("[" * 100_000, "not JSON")]
)
async def test_arguments_that_cannot_be_read_are_answered_not_raised(parameters: str, said: str) -> None:
    async def never(name: str, arguments: dict[str, Any]) -> str:
        pytest.fail("the tool ran")

    (message,) = await answer_calls([Item("f", parameters)], never, turn=1)
    assert message["content"].startswith("error: arguments of f: ")
    assert said in message["content"]


async def test_a_tool_that_gives_no_text_is_named() -> None:
    async def number(name: str, arguments: dict[str, Any]) -> Any:
        return 3

    with pytest.raises(ToolError, match="tool 'f': returned int, not a string"):
        await answer_calls([Item("f", "{}")], number, turn=1)


@pytest.mark.parametrize("turns", [0, -1, 1.0, True, None])
def test_max_turns_is_at_least_one(turns: Any) -> None:
    with pytest.raises(SettingsError, match="max_turns"):
        Tools(specs=[], parser=TaggedJsonParser(), execute=echo, max_turns=turns)


def test_one_turn_is_as_few_as_there_may_be() -> None:
    async def execute(name: str, arguments: dict[str, Any]) -> str:
        return ""

    assert Tools(specs=[], parser=TaggedJsonParser(), execute=execute, max_turns=1).max_turns == 1
    with pytest.raises(SettingsError, match="max_turns: 0"):
        Tools(specs=[], parser=TaggedJsonParser(), execute=execute, max_turns=0)
