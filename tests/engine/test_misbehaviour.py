"""Replies that go wrong on request: what is sampled, and what a client gets of it."""

import json
from random import Random
from typing import Any, get_args

import httpx
import pytest

from miles_sim.engine.engine import Engine
from miles_sim.engine.formats import FORMATS, Dialect
from miles_sim.engine.misbehaviour import REPEATS, role_token
from miles_sim.engine.replies import draft
from miles_sim.engine.settings import EngineSettings
from miles_sim.families import FAMILIES
from miles_sim.reply import Misbehaviour, Reply, ToolCall
from miles_sim.tokenizer import ByteTokenizer

TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}]
CALLS = (ToolCall(name="run", arguments={"path": "a", "n": 1}), ToolCall(name="run", arguments={"path": "b"}))
JSON_KINDS = [kind for kind in get_args(Misbehaviour) if kind.startswith("bad_json")]


def sampled(kind: str | None, family: str = "chatml", **reply: Any) -> str:
    """Text of a whole reply."""
    tokenizer = ByteTokenizer(family)
    return tokenizer.decode(draft(Reply(misbehave=kind, **reply), tokenizer, Random(1), limit=999))  # type: ignore[arg-type]


async def message(kind: str, *, tools: bool = True, profile: str = "sglang-0.5.16", **reply: Any) -> dict[str, Any]:
    """Choice 0 of a chat completion."""
    settings = {"profile": profile, "default_reply": {"misbehave": kind, **reply}}
    engine = Engine(EngineSettings.model_validate(settings), seed=0)
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "Go on."}]}
    if tools:
        body["tools"] = TOOLS
    answer = await _chat(engine, body)
    assert engine.generations[0].misbehaved == kind
    return answer["choices"][0]  # type: ignore[no-any-return]


async def _chat(engine: Engine, body: dict[str, Any]) -> dict[str, Any]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=engine.app), base_url="http://engine") as client:
        return (await client.post("/v1/chat/completions", json=body)).json()  # type: ignore[no-any-return]


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("kind", JSON_KINDS)
def test_only_the_first_calls_arguments_are_spoiled(kind: str, family: str) -> None:
    good, bad = sampled(None, family, tool_calls=CALLS), sampled(kind, family, tool_calls=CALLS)
    assert good != bad
    tool_format = FAMILIES[family].tool_format
    if tool_format == "glm45":
        assert bad == good.replace("</arg_value>", "", 1)
        return
    assert '{"path": "b"}' in bad
    assert good.replace('{"path": "a", "n": 1}', "") == bad.replace(_spoiled(kind), "", 1)


def _spoiled(kind: str) -> str:
    return {
        "bad_json_open": '{"path": "a", "n": 1',
        "bad_json_quotes": "{'path': 'a', 'n': 1}",
        "bad_json_comma": '{"path": "a", "n": 1,}',
        "bad_json_bare": '{path: "a", n: 1}',
    }[kind]


@pytest.mark.parametrize(
    ("kind", "spelled"),
    [
        ("bad_json_open", '"arguments": {"path": "a", "n": 1}\n'),
        ("bad_json_quotes", "\"arguments\": {'path': 'a', 'n': 1}}"),
        ("bad_json_comma", '"arguments": {"path": "a", "n": 1,}}'),
        ("bad_json_bare", '"arguments": {path: "a", n: 1}}'),
    ],
)
def test_each_style_of_bad_json(kind: str, spelled: str) -> None:
    assert spelled in sampled(kind, tokens=0, tool_calls=CALLS)


async def test_releases_drop_a_bad_call_or_leave_it_in_the_content() -> None:
    reply = {"tokens": 2, "tool_calls": [{"name": "run", "arguments": {"path": "a"}}]}
    dropped = await message("bad_json_open", **reply)
    assert (dropped["finish_reason"], dropped["message"]["tool_calls"]) == ("stop", None)
    kept = await message("bad_json_open", profile="miles-rl-0.0.2", **reply)
    assert (kept["finish_reason"], kept["message"]["tool_calls"]) == ("tool_calls", [])
    assert "<tool_call>" in kept["message"]["content"]


async def test_an_unknown_tool_is_no_call() -> None:
    choice = await message("unknown_tool", tokens=0, tool_calls=[{"name": "run"}])
    assert choice["message"]["tool_calls"] is None


async def test_wrong_arguments_are_valid_json_of_another_shape() -> None:
    choice = await message("wrong_arguments", tool_calls=[{"name": "run", "arguments": {"path": "a"}}])
    (call,) = choice["message"]["tool_calls"]
    assert set(json.loads(call["function"]["arguments"])) == {"unasked"}


async def test_calls_of_a_reply_can_have_one_id() -> None:
    calls = [{"name": "run"}, {"name": "run"}]
    same = (await message("same_call_id", tool_calls=calls))["message"]["tool_calls"]
    assert len(same) == 2
    assert same[0]["id"] == same[1]["id"]


async def test_a_leaked_role_shows_where_tools_are_looked_for() -> None:
    shown = await message("leaked_role", tokens=6)
    hidden = await message("leaked_role", tokens=6, tools=False)
    assert "<|im_start|>" in shown["message"]["content"]
    assert "<|im_start|>" not in hidden["message"]["content"]


async def test_an_empty_reply_has_one_id() -> None:
    assert (await message("empty"))["message"]["content"] == ""
    assert sampled("empty", "qwen3") == "<|im_end|>"


def test_an_unclosed_thought_has_no_end_tag() -> None:
    for family in FAMILIES:
        text = sampled("unclosed_think", family, reasoning=3, tokens=3)
        assert "<think>" in text
        assert "</think>" not in text


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_special_token_is_repeated_before_the_stop(family: str) -> None:
    tokenizer = ByteTokenizer(family)
    token = role_token(tokenizer)
    ids = draft(Reply(misbehave="repeated_specials", tokens=2), tokenizer, Random(1), limit=99)
    assert ids[-REPEATS - 1 : -1] == [token] * REPEATS
    assert token not in tokenizer.stop_ids | {tokenizer.eos_id}


def test_white_space_stands_around_the_content() -> None:
    assert sampled("white_space", text="Yes.") == "\n  \tYes. \n\n<|im_end|>"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ({"misbehave": "unknown_tool"}, "misbehave: unknown_tool needs 1 or more tool_calls"),
        ({"misbehave": "same_call_id", "tool_calls": [{"name": "a"}]}, "needs 2 or more tool_calls"),
        ({"misbehave": "bad_json_open", "tool_calls": [{"name": "a"}]}, "needs arguments in the first"),
        ({"reasoning": -1}, r"reasoning: -1 is not 0\.\.100000 ids or a text"),
        ({"misbehave": "sulk"}, "misbehave"),
    ],
)
def test_what_cannot_be_said_is_refused(reply: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Reply.model_validate(reply)


def test_a_good_call_beside_a_bad_one_is_found() -> None:
    text = sampled("bad_json_comma", tokens=0, tool_calls=CALLS)
    (call,) = FORMATS["qwen25"].parse(text, TOOLS, Dialect()).calls
    assert json.loads(call.arguments) == {"path": "b"}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_an_echo_is_the_end_of_the_prompt_without_its_special_tokens(family: str) -> None:
    tokenizer = ByteTokenizer(family)
    prompt = tokenizer.render([{"role": "user", "content": "Fix the parser"}])
    said = draft(Reply(misbehave="echo"), tokenizer, Random(1), limit=999, prompt_ids=prompt)
    assert "Fix the parser" in tokenizer.decode(said)
    assert said.count(tokenizer.text_stop_id) == 1
