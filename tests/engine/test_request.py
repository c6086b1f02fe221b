"""Requests are read as laxly, and refused in the same words, as the releases do."""

import json
from typing import Any

import pytest

from miles_sim.engine.errors import CrashError, NotModelledError, RequestError
from miles_sim.engine.request import ChatRequest, check, parse

USER = [{"role": "user", "content": "hi"}]


def read(**fields: Any) -> ChatRequest:
    return parse(json.dumps({"messages": USER, **fields}).encode(), content_type="application/json")


def refusal(body: bytes, content_type: str = "application/json") -> dict[str, Any]:
    with pytest.raises(RequestError) as caught:
        parse(body, content_type=content_type)
    assert caught.value.status == 400
    return caught.value.body


def test_unknown_fields_are_passed_over() -> None:
    assert read(zz_unknown=1, user="me").messages[0].content == "hi"


def test_types_are_lax() -> None:
    request = read(max_tokens="5", logprobs=1, temperature="0.5")
    assert (request.max_tokens, request.logprobs, request.temperature) == (5, True, 0.5)


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"{", "json_invalid"),
        (b"", "missing"),
        (b"[]", "'body'"),
        (b"{}", "'messages'"),
        (b'{"messages": 3}', "'messages'"),
        (b'{"messages": [{"role": "user", "content": null}]}', "'content'"),
        (b'{"messages": [{"role": "alien", "content": "x"}]}', "'role'"),
        (b'{"messages": [], "input_ids": ["x"]}', "'input_ids'"),
        (b'{"messages": [], "max_tokens": 1.5}', "'max_tokens'"),
    ],
)
def test_a_body_that_does_not_fit_is_a_bad_request_that_says_where(body: bytes, place: str) -> None:
    error = refusal(body)
    assert list(error) == ["object", "message", "type", "param", "code"]
    assert (error["object"], error["type"], error["param"], error["code"]) == ("error", "Bad Request", None, 400)
    assert "validation error" in error["message"]
    assert place in error["message"]


@pytest.mark.parametrize("body", [b"\xff", b"[" * 100_000], ids=["no UTF-8", "too deep"])
def test_a_body_that_no_parser_reads_is_refused_in_one_sentence(body: bytes) -> None:
    error = refusal(body)
    assert (error["message"], error["type"], error["code"]) == ("There was an error parsing the body", "400", 400)


def test_half_a_pair_of_surrogates_is_what_a_release_falls_over() -> None:
    with pytest.raises(CrashError, match="surrogates not allowed") as told:
        parse(b'{"messages": [{"role": "user", "content": "\\ud800"}]}', content_type="application/json")
    assert told.value.status == 500


def test_another_content_type_is_refused() -> None:
    assert "Only 'application/json' is allowed" in refusal(b"{}", "text/plain")["message"]


def test_json_that_only_python_reads_is_read() -> None:
    request = parse(b'{"messages": [{"role": "user", "content": "hi"}], "x": NaN}', content_type="application/json")
    assert request.model == "default"


def test_a_field_that_the_release_does_not_know_is_passed_over() -> None:
    body = json.dumps({"messages": USER, "input_ids": "nonsense"}).encode()
    assert parse(body, content_type="application/json", fields=("messages",)).input_ids is None


def test_a_field_that_the_release_acts_on_and_the_engine_does_not_know_is_refused_by_name() -> None:
    body = json.dumps({"messages": USER, "return_sampling_mask": True}).encode()
    parse(body, content_type="application/json", fields=("messages",))
    with pytest.raises(NotModelledError, match=r"^return_sampling_mask: True is not modelled"):
        parse(body, content_type="application/json", fields=("messages", "return_sampling_mask"))


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}])
def test_such_a_field_that_asks_for_nothing_passes(value: Any) -> None:
    body = json.dumps({"messages": USER, "return_sampling_mask": value}).encode()
    parse(body, content_type="application/json", fields=("messages", "return_sampling_mask"))


def test_a_field_that_changes_nothing_passes() -> None:
    body = json.dumps({"messages": USER, "priority": 3, "user": "me"}).encode()
    parse(body, content_type="application/json", fields=("messages", "priority", "user"))


def test_empty_messages_are_refused_even_with_input_ids() -> None:
    with pytest.raises(RequestError, match=r"^Messages cannot be empty\.$") as caught:
        check(read(messages=[], input_ids=[1]))
    assert caught.value.body["type"] == "BadRequestError"


@pytest.mark.parametrize("field", ["return_meta_info", "return_prompt_token_ids"])
def test_a_stream_with_what_it_cannot_carry_is_the_releases_400(field: str) -> None:
    with pytest.raises(RequestError) as caught:
        check(read(stream=True, **{field: True}), stream_refuses=("return_prompt_token_ids", "return_meta_info"))
    assert caught.value.body == {
        "object": "error",
        "message": f"{field} is not supported with streaming. Please set stream=false when using {field}=true.",
        "type": "BadRequest",
        "param": None,
        "code": 400,
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [("continue_final_message", True), ("session_params", {"id": "x"}), ("custom_logit_processor", "x")],
)
def test_what_is_not_modelled_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(NotModelledError, match=f"^{field}: .* is not modelled") as caught:
        check(read(**{field: value}))
    assert (caught.value.status, caught.value.body["param"]) == (501, field)


def test_neutral_values_of_the_same_fields_pass() -> None:
    check(read(stream=False, n=1, top_logprobs=0, response_format={"type": "text"}, logit_bias={}))


@pytest.mark.parametrize(
    ("fields", "adapter"), [({}, None), ({"model": "base:mine"}, "mine"), ({"lora_path": "other"}, "other")]
)
def test_an_adapter_stands_behind_the_model_or_in_a_field_of_its_own(fields: dict[str, Any], adapter: str) -> None:
    assert read(**fields).adapter == adapter


def test_tool_choices_are_checked_as_the_release_does() -> None:
    tools = [{"type": "function", "function": {"name": "look"}}]
    named = {"type": "function", "function": {"name": "other"}}
    check(read(tools=tools, tool_choice="auto"))
    with pytest.raises(RequestError, match="if tool choice is set to required"):
        check(read(tool_choice="required"))
    with pytest.raises(RequestError, match="if tool choice is set to a specific tool"):
        check(read(tool_choice=named))
    with pytest.raises(RequestError, match="Tool 'other' not found in tools list"):
        check(read(tools=tools, tool_choice=named))
    check(read(tools=tools, tool_choice="required"))


def test_a_schema_may_stand_in_place_of_its_wrapping_and_must_be_there() -> None:
    wrapped = {"type": "json_schema", "json_schema": {"name": "Row", "schema": {"title": "Row"}}}
    bare = {"type": "json_schema", "schema": {"title": "Row"}}
    assert read(response_format=bare).response_format == read(response_format=wrapped).response_format
    with pytest.raises(RequestError, match=r"^schema_ is required for json_schema response format request\.$"):
        check(read(response_format={"type": "json_schema"}))


def test_of_a_named_tool_the_model_is_shown_that_alone() -> None:
    tools = [{"function": {"name": "look"}}, {"function": {"name": "listen"}}]
    named = read(tools=tools, tool_choice={"function": {"name": "listen"}})
    assert [tool["function"]["name"] for tool in named.offered] == ["listen"]
    assert len(read(tools=tools).offered) == 2
