"""What a request constrains is obeyed, whoever asks and however the model is scripted."""

import json
import re
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from miles_sim.engine.engine import Engine

Ask = Callable[..., dict[str, Any]]
Make = Callable[..., Engine]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "A", "schema": SCHEMA}}
TOOLS = [
    {"type": "function", "function": {"name": "look", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "listen", "parameters": None}},
]
ALL = ["sglang-0.5.6", "sglang-0.5.10", "miles-rl-0.0.2", "sglang-0.5.11", "sglang-0.5.16", "sglang-0.5.23"]


def message(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = answer["choices"][0]["message"]
    return found


@pytest.mark.parametrize("tokenizer", ["chatml", "qwen3", "deepseek", "glm", "kimi"])
def test_a_schema_is_obeyed_behind_the_thought(make_engine: Make, ask: Ask, tokenizer: str) -> None:
    engine = make_engine(tokenizer=tokenizer, default_reply={"reasoning": 5})
    choice = ask(engine, response_format=FORMAT)["choices"][0]
    jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)
    assert bool(choice["message"]["reasoning_content"]) == (tokenizer != "chatml")
    assert (choice["finish_reason"], choice["matched_stop"]) == ("stop", engine.tokenizer.text_stop_id)


def test_without_a_parser_for_thoughts_nothing_is_thought(make_engine: Make, ask: Ask) -> None:
    engine = make_engine(tokenizer="qwen3", reasoning_parser=None, default_reply={"reasoning": 5})
    assert set(json.loads(message(ask(engine, response_format={"type": "json_object"}))["content"]))


def test_any_object_is_an_object(make_engine: Make, ask: Ask) -> None:
    said = [message(ask(make_engine(seed=n), response_format={"type": "json_object"}))["content"] for n in range(9)]
    assert all(isinstance(json.loads(text), dict) for text in said)
    assert len(set(said)) > 1


def test_a_pattern_is_obeyed_on_all_endpoints(make_engine: Make, ask: Ask, post: Any) -> None:
    engine, pattern = make_engine(), r"(yes|no)\d{3}"
    texts = [
        message(ask(engine, regex=pattern))["content"],
        post(engine, "/v1/completions", prompt="hi", regex=pattern).json["choices"][0]["text"],
        post(engine, "/generate", text="hi", sampling_params={"regex": pattern}).json["text"],
    ]
    assert all(re.fullmatch(pattern, text) for text in texts)


def test_the_bound_cuts_through_a_grammar(make_engine: Make, ask: Ask) -> None:
    choice = ask(make_engine(), response_format=FORMAT, max_tokens=3)["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ('{"a', "length")


def test_the_end_of_a_grammar_ends_though_eos_is_ignored(make_engine: Make, ask: Ask) -> None:
    fields = {"regex": "abc", "ignore_eos": True, "min_tokens": 10, "logit_bias": {"65": 100}}
    assert message(ask(make_engine(), **fields))["content"] == "abc"


@pytest.mark.parametrize(("scripted", "told"), [('{"a": 7}', True), ("no JSON", False)])
def test_a_scripted_text_stands_where_it_obeys(make_engine: Make, ask: Ask, scripted: str, told: bool) -> None:
    engine = make_engine(default_reply={"text": scripted})
    content = message(ask(engine, response_format=FORMAT))["content"]
    assert (content == scripted) is told
    jsonschema.validate(json.loads(content), SCHEMA)


def test_a_grammar_leaves_no_room_to_misbehave_within_it(make_engine: Make, ask: Ask) -> None:
    engine = make_engine(default_reply={"misbehave": "leaked_role"})
    jsonschema.validate(json.loads(message(ask(engine, response_format=FORMAT))["content"]), SCHEMA)
    assert engine.generations[0].misbehaved is None


@pytest.mark.parametrize("profile", ALL)
@pytest.mark.parametrize("tokenizer", ["chatml", "deepseek", "deepseek31", "glm", "kimi", "qwen3"])
def test_a_required_call_is_made_and_read(make_engine: Make, ask: Ask, profile: str, tokenizer: str) -> None:
    engine = make_engine(profile=profile, tokenizer=tokenizer)
    choice = ask(engine, tools=TOOLS[:1], tool_choice="required", return_meta_info=False)["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMA)
    assert (call["function"]["name"], choice["finish_reason"]) == ("look", "tool_calls")
    assert choice["message"]["content"] in ("", None)


@pytest.mark.parametrize(
    ("profile", "tokenizer", "array"),
    [
        ("sglang-0.5.10", "qwen3", True),
        ("sglang-0.5.11", "qwen3", False),
        ("sglang-0.5.23", "kimi", False),
        ("sglang-0.5.23", "glm", True),
    ],
)
def test_which_releases_have_a_required_call_as_a_json_array(
    make_engine: Make, ask: Ask, profile: str, tokenizer: str, array: bool
) -> None:
    engine = make_engine(profile=profile, tokenizer=tokenizer)
    ask(engine, tools=TOOLS, tool_choice="required")
    (generation,) = engine.generations
    text = engine.tokenizer.decode(generation.output_ids, skip_special_tokens=True).rpartition("</think>")[2]
    assert text.startswith('[{"name": ') is array


@pytest.mark.parametrize("profile", ["sglang-0.5.6", "sglang-0.5.16"])
@pytest.mark.parametrize("tokenizer", ["chatml", "glm", "kimi"])
def test_a_stream_tells_the_same_calls(make_engine: Make, post: Any, profile: str, tokenizer: str) -> None:
    fields = {"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS, "tool_choice": "required"}
    calls = [{"name": "look", "arguments": {"a": 1}}, {"name": "look", "arguments": {"a": [2, {"b": 3}]}}]
    told = []
    for stream in (False, True):
        engine = make_engine(profile=profile, tokenizer=tokenizer, default_reply={"tool_calls": calls})
        answer = post(engine, "/v1/chat/completions", stream=stream, **fields)
        told.append(_called(answer.events) if stream else _whole(answer.json))
    assert told[0] == [("look", {"a": 1}), ("look", {"a": [2, {"b": 3}]})]
    if profile == "sglang-0.5.6":  # its stream takes the bracket in the arguments for the array's
        assert told[1][0] == told[0][0]
    else:
        assert told[0] == told[1]


def _whole(answer: dict[str, Any]) -> list[tuple[str, Any]]:
    calls = message(answer)["tool_calls"]
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]


def _called(events: list[Any]) -> list[tuple[str, Any]]:
    names: dict[int, str] = {}
    spelled: dict[int, str] = {}
    for event in events:
        for choice in event["choices"]:
            for call in choice["delta"].get("tool_calls") or ():
                names.setdefault(call["index"], call["function"]["name"])
                spelled[call["index"]] = spelled.get(call["index"], "") + (call["function"]["arguments"] or "")
    return [(names[n], json.loads(spelled[n] or "null")) for n in sorted(names)]


def test_a_named_tool_alone_is_shown_and_called(make_engine: Make, ask: Ask) -> None:
    named = {"type": "function", "function": {"name": "listen"}}
    engine = make_engine(default_reply={"tool_calls": [{"name": "look"}, {"name": "listen", "arguments": {"x": 1}}]})
    answer = ask(engine, tools=TOOLS, tool_choice=named)
    assert _whole(answer) == [("listen", {"x": 1})]
    shown = engine.tokenizer.decode(engine.generations[0].prompt_ids)
    assert '"listen"' in shown
    assert '"look"' not in shown


def test_without_a_parser_a_required_call_stays_text(make_engine: Make, ask: Ask) -> None:
    engine = make_engine(tool_call_parser=None)
    said = message(ask(engine, tools=TOOLS, tool_choice="required"))
    assert said["tool_calls"] is None
    assert set(json.loads(said["content"])[0]) == {"name", "parameters"}


@pytest.mark.parametrize(
    ("profile", "fields", "status", "text"),
    [
        ("sglang-0.5.16", {"regex": "("}, 400, "Failed to compile regex grammar: missing ), unterminated"),
        ("sglang-0.5.6", {"regex": "("}, 400, "Invalid grammar request: req.grammar_key=('regex', '(')"),
        ("sglang-0.5.16", {"regex": "a", "response_format": FORMAT}, 400, "Only one of regex, json_schema, or ebnf"),
        ("sglang-0.5.23", {"regex": "a", "response_format": FORMAT}, 400, "Only one of json_schema, regex, ebnf, or"),
        ("sglang-0.5.16", {"response_format": {"type": "json_schema"}}, 400, "schema_ is required"),
        ("sglang-0.5.16", {"response_format": {"type": "structural_tag"}}, 501, "response_format: 'structural_tag'"),
        ("sglang-0.5.16", {"ebnf": "root ::= 'a'"}, 501, "ebnf: "),
        ("sglang-0.5.16", {"regex": r"(a)\1"}, 501, r"regex: '(a)\\1' is not modelled"),
        ("sglang-0.5.23", {"regex": "a", "tools": TOOLS, "tool_choice": "required"}, 400, "tool_choice 'required' or"),
        ("sglang-0.5.16", {"regex": "a", "tools": TOOLS, "tool_choice": "required"}, 501, "tool_choice: 'required'"),
    ],
)
def test_what_cannot_be_obeyed_is_refused(
    make_engine: Make, post: Any, profile: str, fields: dict[str, Any], status: int, text: str
) -> None:
    answer = post(make_engine(profile=profile), "/v1/chat/completions", messages=[_HI], **fields)
    assert answer.status == status
    assert answer.json["message"].startswith(text)


_HI = {"role": "user", "content": "hi"}


def test_a_schema_of_generate_is_a_text_of_json(make_engine: Make, post: Any) -> None:
    engine = make_engine(tokenizer="qwen3", default_reply={"reasoning": 4})
    asked = {"json_schema": json.dumps(SCHEMA)}
    jsonschema.validate(json.loads(post(engine, "/generate", text="hi", sampling_params=asked).json["text"]), SCHEMA)
    thought = post(engine, "/generate", text="hi", sampling_params=asked, require_reasoning=True).json["text"]
    assert thought.startswith("<think>\n")
    jsonschema.validate(json.loads(thought.rpartition("</think>")[2]), SCHEMA)
    broken = post(engine, "/generate", text="hi", sampling_params={"json_schema": "{"})
    assert (broken.status, broken.json["error"]["message"][:32]) == (400, "Failed to compile json grammar: ")


def test_completions_obey_a_response_format_and_name_its_lack(make_engine: Make, post: Any) -> None:
    asked = {"prompt": "hi", "max_tokens": 200}
    answer = post(make_engine(), "/v1/completions", response_format=FORMAT, **asked)
    jsonschema.validate(json.loads(answer.json["choices"][0]["text"]), SCHEMA)
    lacking = post(make_engine(), "/v1/completions", response_format={"type": "json_schema"}, **asked)
    assert (lacking.status, lacking.json["type"]) == (400, "BadRequest")
