"""`/v1/completions` answers prompts of text or ids as each release does."""

from collections.abc import Callable
from typing import Any

import pytest

from miles_sim.engine import profiles
from miles_sim.engine.engine import Engine

Make = Callable[..., Engine]
Post = Callable[..., Any]
PROFILES = profiles.names()
RELEASE = {name: 10 if name.startswith("miles") else int(name.rpartition(".")[2]) for name in PROFILES}
PATH = "/v1/completions"


@pytest.mark.parametrize("profile", PROFILES)
def test_an_answer_has_the_keys_of_the_release(make_engine: Make, post: Post, profile: str) -> None:
    engine = make_engine(profile=profile)
    answer = post(engine, PATH, prompt="hi").json
    assert list(answer) == ["id", "object", "created", "model", "choices", "usage", "metadata"]
    assert list(answer["choices"][0]) == ["index", "text", "logprobs", "finish_reason", "matched_stop"]
    assert list(answer["usage"]) == list(engine.profile.usage.keys)
    truth = engine.generations[0]
    assert answer["object"] == "text_completion"
    assert (answer["id"], answer["usage"]["completion_tokens"]) == (truth.id, len(truth.output_ids))
    assert answer["choices"][0]["text"] == engine.tokenizer.decode(truth.output_ids)
    assert (truth.endpoint, answer["choices"][0]["finish_reason"]) == ("completions", "length")
    assert len(truth.output_ids) == 16
    assert ("weight_versions" in answer["metadata"]) is (RELEASE[profile] >= 20)


def test_text_and_ids_ask_the_same(make_engine: Make, post: Post) -> None:
    ids = make_engine().tokenizer.encode("hi")
    first = post(make_engine(), PATH, prompt="hi").json
    assert post(make_engine(), PATH, prompt=ids).json == first
    assert post(make_engine(), PATH, prompt=["hi"]).json["choices"] == first["choices"]


def test_choices_stand_prompt_by_prompt_and_prompts_are_counted_once(make_engine: Make, post: Post) -> None:
    answer = post(make_engine(), PATH, prompt=["hi", "there"], n=2, max_tokens=3, echo=True).json
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    heads = ["hi", "hi", "there", "there"]
    assert all(choice["text"].startswith(head) for choice, head in zip(answer["choices"], heads, strict=True))
    assert answer["usage"]["prompt_tokens"] == len("hi") + len("there")
    assert answer["usage"]["completion_tokens"] == 12


@pytest.mark.parametrize("profile", PROFILES)
def test_logprobs_speak_openais_older_language(make_engine: Make, post: Post, profile: str) -> None:
    engine = make_engine(profile=profile)
    told = post(engine, PATH, prompt="hi", logprobs=2, max_tokens=3).json["choices"][0]["logprobs"]
    truth = engine.generations[0]
    assert list(told) == ["text_offset", "token_logprobs", "tokens", "top_logprobs"]
    assert told["text_offset"] == [-1] * 3
    assert told["token_logprobs"] == list(truth.logprobs)
    assert [len(row) for row in told["top_logprobs"]] == [2, 2, 2]


def test_an_echo_brings_the_logprobs_of_the_prompt(make_engine: Make, post: Post) -> None:
    choice = post(make_engine(), PATH, prompt="hi you", logprobs=1, echo=True, max_tokens=2).json["choices"][0]
    assert choice["text"].startswith("hi you")
    told = choice["logprobs"]
    assert "".join(told["tokens"]) == choice["text"]
    assert (told["token_logprobs"][0], told["top_logprobs"][0]) == (None, None)
    assert len(told["token_logprobs"]) == len(told["top_logprobs"]) == len("hi you") + 2


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("echo", [False, True])
def test_no_alternatives_trip_the_releases_that_look_for_them(
    make_engine: Make, post: Post, profile: str, echo: bool
) -> None:
    crashes = RELEASE[profile] < (23 if echo else 10)
    answer = post(make_engine(profile=profile), PATH, prompt="hi", logprobs=0, echo=echo)
    assert answer.status == (500 if crashes else 200)
    if crashes:
        key = "input_top_logprobs" if echo else "output_top_logprobs"
        assert answer.json["message"] == f"Internal server error: '{key}'"
    else:
        assert answer.json["choices"][0]["logprobs"]["top_logprobs"] == []


def test_bytes_of_a_character_are_told_apart_from_0_5_23_on(make_engine: Make, post: Post) -> None:
    for profile, spelled in (("sglang-0.5.16", ["\ufffd"] * 3), ("sglang-0.5.23", ["å", "\xad", "\x97"])):
        engine = make_engine(profile=profile, default_reply={"text": "字"})
        told = post(engine, PATH, prompt="hi", logprobs=1).json["choices"][0]["logprobs"]["tokens"]
        assert told[:3] == spelled


@pytest.mark.parametrize("profile", PROFILES)
def test_a_stream_says_what_the_whole_answer_says(make_engine: Make, post: Post, profile: str) -> None:
    asked = {"prompt": ["hi", [104, 111]][0:1], "n": 2, "max_tokens": 5, "logprobs": 2, "echo": True}
    whole = post(make_engine(profile=profile), PATH, **asked).json
    options = {"include_usage": True}
    pieces = post(make_engine(profile=profile), PATH, stream=True, stream_options=options, **asked).events
    *content, last = pieces
    for choice in whole["choices"]:
        told = [c for piece in content for c in piece["choices"] if c["index"] == choice["index"]]
        assert "".join(c["text"] for c in told) == choice["text"]
        for key in ("tokens", "token_logprobs", "top_logprobs"):
            assert [value for c in told for value in c["logprobs"][key]] == choice["logprobs"][key]
        assert [c["finish_reason"] for c in told] == [None] * (len(told) - 1) + ["length"]
    assert last["choices"] == []
    assert last["usage"] == {key: value for key, value in whole["usage"].items() if value is not None}
    assert all(list(piece) == ["id", "object", "created", "model", "choices", "usage"] for piece in pieces)


def test_ids_come_back_where_the_release_has_them(make_engine: Make, post: Post) -> None:
    asked = {"prompt": "hi", "max_tokens": 3, "return_token_ids": True}
    assert "token_ids" not in post(make_engine(), PATH, **asked).json["choices"][0]
    engine = make_engine(profile="sglang-0.5.20")
    choice = post(engine, PATH, **asked).json["choices"][0]
    truth = engine.generations[0]
    assert (choice["token_ids"], choice["prompt_token_ids"]) == (list(truth.output_ids), list(truth.prompt_ids))
    streamed = post(make_engine(profile="sglang-0.5.20"), PATH, stream=True, **asked).events
    parts = [piece["choices"][0] for piece in streamed]
    assert [token for part in parts for token in part["token_ids"]] == list(truth.output_ids)
    assert ["prompt_token_ids" in part for part in parts] == [True] + [False] * (len(parts) - 1)


@pytest.mark.parametrize(
    ("asked", "status", "kind", "message"),
    [
        ({"prompt": ""}, 400, "BadRequestError", "Prompt cannot be empty"),
        ({"prompt": [""]}, 400, "BadRequestError", "Prompt cannot be empty"),
        ({"prompt": "hi", "max_tokens": 0}, 400, "Bad Request", "1 validation error"),
        ({"prompt": "hi", "top_p": 7}, 400, "BadRequestError", "top_p must be in (0, 1], got 7.0."),
        ({"prompt": "x" * 90}, 400, "BadRequestError", "The input (90 tokens) is longer than the model's context"),
        ({"prompt": "hi", "ebnf": "a"}, 501, "NotModelled", "sampling_params.ebnf: 'a' is not modelled"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_refusals_are_openai_errors(
    make_engine: Make, post: Post, asked: dict[str, Any], status: int, kind: str, message: str, stream: bool
) -> None:
    engine = make_engine(context_length=64)
    answer = post(engine, PATH, stream=stream, **asked)
    assert (answer.status, answer.json["type"]) == (status, kind)
    assert answer.json["message"].startswith(message)
    assert engine.generations == []


def test_0_5_6_tells_an_early_error_within_the_stream(make_engine: Make, post: Post) -> None:
    engine = make_engine(profile="sglang-0.5.6", context_length=64)
    answer = post(engine, PATH, prompt="x" * 90, stream=True)
    assert (answer.status, answer.events[0]["error"]["code"]) == (200, 400)
