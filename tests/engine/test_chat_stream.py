"""A streamed chat completion has the pieces of its release, and says what the whole one says."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from miles_sim.engine import profiles
from miles_sim.engine.engine import Engine
from miles_sim.engine.sse import StreamCutError

Make = Callable[..., Engine]
Post = Callable[..., Any]
PROFILES = profiles.names()
RELEASE = {name: 10 if name.startswith("miles") else int(name.rpartition(".")[2]) for name in PROFILES}
CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "look"}}]
CALLS = {
    "contains": "call",
    "reply": {"text": "Well.", "tool_calls": [{"name": "look", "arguments": {"at": "x"}}, {"name": "look"}]},
}


def stream(post: Post, engine: Engine, text: str = "hi", **fields: Any) -> list[dict[str, Any]]:
    answer = post(engine, CHAT, messages=[{"role": "user", "content": text}], stream=True, **fields)
    assert (answer.status, answer.kind) == (200, "text/event-stream; charset=utf-8")
    pieces: list[dict[str, Any]] = answer.events
    return pieces


def deltas(pieces: list[dict[str, Any]], index: int = 0) -> list[dict[str, Any]]:
    return [c["delta"] for piece in pieces for c in piece["choices"] if c["index"] == index]


@pytest.mark.parametrize("profile", PROFILES)
def test_pieces_have_the_keys_of_the_release(make_engine: Make, post: Post, profile: str) -> None:
    pieces = stream(post, make_engine(profile=profile, default_reply={"text": "he"}))
    old = RELEASE[profile] <= 10
    first, content, *_, last = deltas(pieces)
    if old:
        empty = {"role": None, "content": None, "reasoning_content": None, "tool_calls": None}
        assert first == empty | {"role": "assistant", "content": ""}
        assert content == empty | {"content": "h"}
        assert last == empty
        assert list(first) == list(empty)
    else:
        assert list(first.items()) == [("reasoning_content", None), ("role", "assistant"), ("content", "")]
        assert content == {"reasoning_content": None, "content": "h"}
        assert last == {"reasoning_content": None}
    for piece in pieces:
        assert list(piece) == ["id", "object", "created", "model", "choices", *(["usage"] if old else [])]
        assert piece.get("usage") is None
        assert list(piece["choices"][0]) == ["index", "delta", "logprobs", "finish_reason", "matched_stop"]
    ends = [(c["finish_reason"], c["matched_stop"]) for piece in pieces for c in piece["choices"]]
    assert ends[:-1] == [(None, None)] * (len(ends) - 1)
    assert ends[-1] == ("stop", make_engine().tokenizer.text_stop_id)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_stream_says_what_the_whole_answer_says(make_engine: Make, post: Post, profile: str) -> None:
    asked = {"messages": USER, "logprobs": True, "top_logprobs": 2}
    settings: dict[str, Any] = {"profile": profile, "default_reply": {"tokens": 40}}
    whole = post(make_engine(**settings), CHAT, **asked).json["choices"][0]
    pieces = stream(post, make_engine(**settings), logprobs=True, top_logprobs=2)
    assert "".join(delta.get("content") or "" for delta in deltas(pieces)) == whole["message"]["content"]
    told = [c["logprobs"]["content"] for piece in pieces for c in piece["choices"] if c["logprobs"]]
    flat = [entry for entries in told for entry in entries]
    expected = whole["logprobs"]["content"]
    if engine_flushes := RELEASE[profile] >= 16:
        assert flat == expected
    else:  # ids without text of their own, the stop token at least, go untold
        assert flat == [entry for entry in expected if entry in flat]
        assert expected[-1] not in flat
    assert engine_flushes or len(flat) > 20


def test_speculative_steps_come_in_one_piece_with_their_own_or_the_first_ids_alternatives(
    make_engine: Make, post: Post
) -> None:
    for profile, same in (("sglang-0.5.16", True), ("sglang-0.5.23", False)):
        engine = make_engine(profile=profile, speculative={"acceptance": [1.0]}, default_reply={"tokens": 12})
        pieces = stream(post, engine, logprobs=True, top_logprobs=1)
        groups = [c["logprobs"]["content"] for piece in pieces for c in piece["choices"] if c["logprobs"]]
        many = next(group for group in groups if len(group) == 4)
        assert (len({json.dumps(entry["top_logprobs"]) for entry in many}) == 1) is same


def test_a_character_is_told_when_it_is_whole(make_engine: Make, post: Post) -> None:
    engine = make_engine(default_reply={"text": "a字🙂b"})
    told = [delta["content"] for delta in deltas(stream(post, engine)) if delta.get("content")]
    assert told == ["a", "字", "🙂", "b"]


@pytest.mark.parametrize("profile", PROFILES)
def test_calls_come_name_first_then_their_arguments(make_engine: Make, post: Post, profile: str) -> None:
    engine = make_engine(profile=profile, rules=[CALLS])
    pieces = stream(post, engine, "call", tools=TOOLS)
    said = deltas(pieces)
    assert "".join(delta.get("content") or "" for delta in said).strip() == "Well."
    calls = [call for delta in said for call in delta.get("tool_calls") or []]
    assert [list(call) for call in calls] == [["id", "index", "type", "function"]] * len(calls)
    heads = [call for call in calls if call["id"]]
    assert [(head["index"], head["function"]) for head in heads] == [
        (0, {"name": "look", "arguments": ""}),
        (1, {"name": "look", "arguments": ""}),
    ]
    first = [call for call in calls if call["index"] == 0]
    assert all(call["function"]["name"] is None and call["id"] is None for call in first[1:])
    assert json.loads("".join(call["function"]["arguments"] for call in first)) == {"at": "x"}
    for piece in pieces:
        for c in piece["choices"]:
            if c["delta"].get("tool_calls"):
                assert list(c["delta"]) == ["role", "content", "reasoning_content", "tool_calls"]
                assert piece["usage"] is None
    last = pieces[-1]["choices"][0]
    assert (last["finish_reason"], last["matched_stop"]) == ("tool_calls", engine.tokenizer.call_stop_id)


def test_ids_of_streamed_calls_are_those_of_the_whole_answer(make_engine: Make, post: Post) -> None:
    asked = {"messages": [{"role": "user", "content": "call"}], "tools": TOOLS}
    whole = post(make_engine(rules=[CALLS]), CHAT, **asked).json["choices"][0]["message"]["tool_calls"]
    pieces = deltas(stream(post, make_engine(rules=[CALLS]), "call", tools=TOOLS))
    ids = [call["id"] for delta in pieces for call in delta.get("tool_calls") or [] if call["id"]]
    assert ids == [call["id"] for call in whole]


@pytest.mark.parametrize("profile", PROFILES)
def test_usage_comes_last_and_with_each_piece_where_it_is_asked_for(
    make_engine: Make, post: Post, profile: str
) -> None:
    engine = make_engine(profile=profile, cache_report=True)
    options = {"include_usage": True, "continuous_usage_stats": True}
    stream(post, engine)
    pieces = stream(post, engine, stream_options=options)
    last = pieces[-1]
    truth = engine.generations[-1]
    cached = {"cached_tokens": truth.cached_tokens}
    assert last["choices"] == []
    assert list(last["usage"]) == list(engine.profile.usage.keys)
    assert last["usage"]["completion_tokens"] == len(truth.output_ids)
    assert last["usage"]["prompt_tokens_details"] == cached
    counted = [piece["usage"] for piece in pieces[1:-2] if piece["choices"][0]["delta"].get("content")]
    assert [usage["completion_tokens"] for usage in counted] == sorted({u["completion_tokens"] for u in counted})
    details = cached if RELEASE[profile] >= 16 else None
    assert all(usage["prompt_tokens_details"] == details for usage in counted)


@pytest.mark.parametrize("profile", PROFILES)
def test_sglext_has_what_the_release_tells_in_a_stream(make_engine: Make, post: Post, profile: str) -> None:
    engine = make_engine(profile=profile, experts={}, speculative={})
    wishes: dict[str, Any] = {
        "return_routed_experts": True,
        "return_cached_tokens_details": True,
        "return_spec_tokens_details": True,
        "return_input_ids_in_sglext": True,
        "return_output_ids_in_sglext": True,
    }
    stream(post, engine)
    pieces = stream(post, engine, **wishes)
    told = [piece["sglext"] for piece in pieces if "sglext" in piece]
    assert [list(one) for one in told] == ([list(engine.profile.chat.stream.sglext)] if RELEASE[profile] > 6 else [])
    if RELEASE[profile] >= 20:
        truth = engine.generations[-1]
        assert told[0]["output_ids"] == [list(truth.output_ids)]
        assert told[0]["input_ids"] == list(truth.prompt_ids)
        assert len(told[0]["spec_tokens_details"]) == 9


def test_ids_may_come_as_an_event_of_their_own(make_engine: Make, post: Post) -> None:
    headers = {"x-sglext-return-output-ids": "1", "x-sglext-ids-framed": "1"}
    for profile, framed in (("sglang-0.5.23", True), ("sglang-0.5.16", False)):
        text = post(make_engine(profile=profile), CHAT, headers=headers, messages=USER, stream=True).text
        assert ("event: sglext_ids\ndata: " in text) is framed


def test_several_replies_share_a_stream(make_engine: Make, post: Post) -> None:
    whole = post(make_engine(), CHAT, messages=USER, n=3).json
    pieces = stream(post, make_engine(), n=3, stream_options={"include_usage": True})
    for choice in whole["choices"]:
        text = "".join(delta.get("content") or "" for delta in deltas(pieces, choice["index"]))
        assert text == choice["message"]["content"]
    assert len({choice["message"]["content"] for choice in whole["choices"]}) == 3
    assert pieces[-1]["usage"] == whole["usage"]
    assert whole["usage"]["prompt_tokens"] * 3 > whole["usage"]["prompt_tokens"]


def test_replies_that_share_a_stream_end_in_the_order_in_which_they_were_done(make_engine: Make, post: Post) -> None:
    rules = [
        {"contains": "hi", "attempt": 0, "reply": {"text": "a long one"}},
        {"contains": "hi", "attempt": 1, "reply": {"text": "b"}},
    ]
    pieces = stream(post, make_engine(rules=rules), n=2)
    ends = [choice["index"] for piece in pieces for choice in piece["choices"] if choice["finish_reason"]]
    assert ends == [1, 0]


@pytest.mark.parametrize("profile", PROFILES)
def test_an_error_before_the_first_piece(make_engine: Make, post: Post, profile: str) -> None:
    engine = make_engine(profile=profile, context_length=64)
    answer = post(engine, CHAT, messages=[{"role": "user", "content": "x" * 99}], stream=True)
    if profile == "sglang-0.5.6":
        assert (answer.status, answer.events[0]["error"]["type"]) == (200, "BadRequestError")
        assert answer.text.startswith('data: {"error": {"object": "error", "message": "The input (')
    else:
        assert (answer.status, answer.json["type"]) == (400, "BadRequestError")
        assert answer.kind == "application/json"


@pytest.mark.parametrize("field", ["return_meta_info", "return_prompt_token_ids", "return_token_ids"])
@pytest.mark.parametrize("profile", PROFILES)
def test_what_a_stream_cannot_carry_is_refused_or_passed_over(
    make_engine: Make, post: Post, profile: str, field: str
) -> None:
    since = {"return_meta_info": 13, "return_prompt_token_ids": 13, "return_token_ids": 20}[field]
    refused = RELEASE[profile] >= since or (profile.startswith("miles") and field == "return_prompt_token_ids")
    answer = post(make_engine(profile=profile), CHAT, messages=USER, stream=True, **{field: True})
    assert answer.status == (400 if refused else 200)
    if refused:
        assert answer.json["message"].startswith(f"{field} is not supported with streaming")


@pytest.mark.parametrize("profile", PROFILES)
def test_a_running_request_that_is_aborted_ends_its_stream_as_the_release_does(
    make_engine: Make, post: Post, profile: str
) -> None:
    engine = make_engine(profile=profile, default_reply={"tokens": 9, "abort_after": 4})
    if RELEASE[profile] == 10:
        with pytest.raises(StreamCutError):
            stream(post, engine)
        return
    last = stream(post, engine)[-1]["choices"][0]
    assert (last["finish_reason"], last["matched_stop"]) == ("abort", None)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_waiting_request_that_is_aborted_ends_its_stream_as_the_release_does(make_engine: Make, profile: str) -> None:
    engine = make_engine(profile=profile, latency={"clock": "virtual"}, max_running_requests=1)
    body = json.dumps({"messages": USER, "stream": True}).encode()

    async def told() -> bytes:
        pieces = [await engine.serving.chat(body, content_type="application/json") for _ in range(2)]
        engine.scheduler.abort(list(engine.scheduler.flights)[1])
        assert not isinstance(pieces[1], bytes)
        return b"".join([piece async for piece in pieces[1]])

    if profile == "sglang-0.5.6":
        with pytest.raises(StreamCutError):
            asyncio.run(told())
        return
    text = asyncio.run(told()).decode()
    events = [json.loads(line[6:]) for line in text.split("\n\n") if line and not line.endswith("[DONE]")]
    assert text.endswith("data: [DONE]\n\n")
    if RELEASE[profile] == 10:
        message = {"object": "error", "message": "Abort in waiting queue", "type": "INTERNAL_SERVER_ERROR"}
        assert events == [{"error": message | {"param": None, "code": 500}}]
    else:
        assert [event["choices"][0]["finish_reason"] for event in events] == [None, "abort"]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_full_queue_ends_a_stream_as_the_release_does(make_engine: Make, profile: str) -> None:
    engine = make_engine(profile=profile, latency={"clock": "virtual"}, max_running_requests=1, max_queued_requests=1)
    body = json.dumps({"messages": USER, "stream": True}).encode()

    async def told() -> list[Any]:
        said = [await engine.serving.chat(body, content_type="application/json") for _ in range(3)]
        assert not isinstance(said[2], bytes)
        text = b"".join([piece async for piece in said[2]]).decode()
        return [json.loads(line[6:]) for line in text.split("\n\n") if line and not line.endswith("[DONE]")]

    events = asyncio.run(told())
    if 10 <= RELEASE[profile] <= 13:
        assert events[0]["error"]["type"] == "SERVICE_UNAVAILABLE"
        assert events[0]["error"]["code"] == 503
    else:
        assert events[-1]["choices"][0]["finish_reason"] == "abort"


def test_a_client_that_hangs_up_aborts_its_requests(make_engine: Make) -> None:
    engine = make_engine(latency={"clock": "virtual"}, default_reply={"tokens": 50})
    body = json.dumps({"messages": USER, "stream": True, "n": 2}).encode()

    async def hang_up() -> None:
        said = await engine.serving.chat(body, content_type="application/json")
        assert not isinstance(said, bytes)
        await anext(said)
        await said.aclose()
        await engine.scheduler.settled()

    asyncio.run(hang_up())
    assert [g.finish_reason["type"] for g in engine.generations] == ["abort", "abort"]
    assert all(len(g.output_ids) < 10 for g in engine.generations)
