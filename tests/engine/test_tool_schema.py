"""Tools whose parameters are no JSON schema are refused; types under other names are read as the release reads them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from miles_sim.engine import profiles
from miles_sim.engine.engine import Engine
from miles_sim.engine.tool_schema import rewritten

Make = Callable[..., Engine]
Post = Callable[..., Any]
CHAT = "/v1/chat/completions"
OLD = ("miles-rl-0.0.2", "sglang-0.5.6", "sglang-0.5.10", "sglang-0.5.11")


def body(*schemas: Any) -> dict[str, Any]:
    """A chat with one tool for each schema of parameters."""
    tools = [{"type": "function", "function": {"name": f"t{n}", "parameters": s}} for n, s in enumerate(schemas)]
    return {"messages": [{"role": "user", "content": "go"}], "tools": tools, "max_tokens": 4}


@pytest.mark.parametrize("profile", profiles.names())
def test_the_first_tool_without_a_schema_is_named(make_engine: Make, post: Post, profile: str) -> None:
    engine = make_engine(profile=profile)
    for _ in range(2):
        answer = post(engine, CHAT, **body({"type": "object"}, {"type": "nonsense"}, {"type": 3}))
        assert answer.status == 400
        message = answer.json["message"]
        assert message.startswith("Tool 1 function has invalid 'parameters' schema: 'nonsense' is not valid under")
    assert not engine.generations
    assert post(engine, CHAT, **body(None, True, {"properties": {"a": {}}})).status == 200


@pytest.mark.parametrize("profile", profiles.names())
def test_types_of_databases_pass_where_the_release_has_them(make_engine: Make, post: Post, profile: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "varchar(255)"}}}
    engine = make_engine(profile=profile)
    answer = post(engine, CHAT, **body(schema))
    assert answer.status == (400 if profile in OLD else 200)
    if profile not in OLD:
        told = engine.tokenizer.decode(engine.generations[0].prompt_ids)
        assert json.dumps({"a": {"type": "string"}}) in told
        assert "varchar" not in told


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("string", "string"),
        ("STRING", "string"),
        ("text", "string"),
        ("decimal(10,2)", "number"),
        ("int", "integer"),
        ("int32", "integer"),
        ("unsigned long", "integer"),
        ("float64", "number"),
        ("list[str]", "array"),
        ("dict[str, int]", "object"),
        ("internal", "internal"),
        ("list_price", "list_price"),
        ("", ""),
        (3, 3),
        (["varchar", "string", "null"], ["string", "null"]),
    ],
)
def test_a_type_is_read_by_its_standard_name(given: Any, read: Any) -> None:
    assert rewritten({"type": given}) == {"type": read}


def test_types_are_rewritten_wherever_a_schema_stands_and_nowhere_else() -> None:
    odd, good = {"type": "varchar"}, {"type": "string"}

    def around(inner: Any) -> dict[str, Any]:
        return {
            "properties": {"type": inner},
            "$defs": {"d": {"items": inner}},
            "anyOf": [inner, {"not": inner}],
            "additionalProperties": inner,
            "items": [inner],
        }

    given = around(odd) | {"enum": [odd], "default": odd}
    assert rewritten(given) == around(good) | {"enum": [odd], "default": odd}
    assert given == around(odd) | {"enum": [odd], "default": odd}


@pytest.mark.parametrize("profile", profiles.names())
def test_a_schema_without_end_is_refused(make_engine: Make, post: Post, profile: str) -> None:
    schema: Any = {"type": "object"}
    for _ in range(200):
        schema = {"properties": {"a": schema}}
    answer = post(make_engine(profile=profile), CHAT, **body(schema))
    assert answer.status == (500 if profile in OLD else 400)
    assert ("Internal server error: maximum recursion" if profile in OLD else "too deeply nested") in answer.text


def test_numbers_of_any_length_are_looked_at(make_engine: Make, post: Post) -> None:
    engine = make_engine()
    assert post(engine, CHAT, **body({"maximum": 2**70})).status == 200
    assert post(engine, CHAT, **body({"maximum": 2**70, "type": 2**70})).status == 400


@pytest.mark.parametrize("profile", profiles.names())
def test_more_output_than_the_context_holds_is_refused_before_the_prompt_is_looked_at(
    make_engine: Make, post: Post, profile: str
) -> None:
    engine = make_engine(profile=profile, context_length=64)
    for field in ("max_tokens", "max_completion_tokens"):
        chat = {"messages": [{"role": "user", "content": "x" * 99}], field: 65}
        answer = post(engine, CHAT, **chat)
        assert answer.status == 400
        expected = "max_completion_tokens is too large: 65.This model supports at most 64 completion tokens."
        assert answer.json["message"] == expected
