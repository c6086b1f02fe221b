"""What clients ask of sampling beside its ranges, over all three endpoints."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from miles_sim.engine.engine import Engine
from miles_sim.engine.errors import RequestError
from miles_sim.engine.profiles import load
from miles_sim.engine.sampling import Sampling, check_ranges
from miles_sim.engine.sampling_params import sampling_of_params
from miles_sim.engine.steering import Steering

Make = Callable[..., Engine]
HI = [{"role": "user", "content": "hi"}]
PROFILE = load("sglang-0.5.16")


def three(make: Make, post: Any, **asked: Any) -> list[Any]:
    """The generation that each endpoint makes of it."""
    native = {{"min_tokens": "min_new_tokens"}.get(name, name): value for name, value in asked.items()}
    bodies = {
        "/v1/chat/completions": {"messages": HI, "max_tokens": 60, **asked},
        "/v1/completions": {"prompt": "hi", "max_tokens": 60, **asked},
        "/generate": {"text": "hi", "sampling_params": {"max_new_tokens": 60, **native}},
    }
    found = []
    for path, body in bodies.items():
        engine = make(default_reply={"tokens": 12})
        answer = post(engine, path, **body)
        assert answer.status == 200, answer.text
        found.append((engine.generations[0], engine.tokenizer))
    return found


def test_what_ignores_eos_goes_on_to_its_bound(make_engine: Make, post: Any) -> None:
    for generation, tokenizer in three(make_engine, post, ignore_eos=True, stop_token_ids=[300]):
        assert generation.finish_reason == {"type": "length", "length": 60}
        assert tokenizer.text_stop_id in generation.output_ids


def test_no_stop_token_comes_before_the_least_length(make_engine: Make, post: Any) -> None:
    for generation, tokenizer in three(make_engine, post, min_tokens=30):
        assert generation.finish_reason == {"type": "stop", "matched": tokenizer.text_stop_id}
        assert len(generation.output_ids) == 31
    for generation, _ in three(make_engine, post, min_tokens=5):
        assert len(generation.output_ids) == 13


def test_a_bias_forces_and_forbids(make_engine: Make, post: Any) -> None:
    for generation, _ in three(make_engine, post, logit_bias={"300": 100}):
        assert set(generation.output_ids) == {300}
        assert max(generation.logprobs) <= 0
    for generation, tokenizer in three(make_engine, post, logit_bias={"820": -100}):
        assert tokenizer.text_stop_id == 820
        assert 820 not in generation.output_ids
        assert len(generation.output_ids) == 60


def test_a_pattern_stops(make_engine: Make, post: Any) -> None:
    for generation, tokenizer in three(make_engine, post, stop_regex=["zzzz", "[a-z] [a-z]"]):
        assert generation.finish_reason == {"type": "stop", "matched": "[a-z] [a-z]"}
        assert re.search("[a-z] [a-z]", tokenizer.decode(generation.output_ids))
        assert not re.search("[a-z] [a-z]", tokenizer.decode(generation.output_ids[:-1]))


def test_what_asks_for_nothing_asks_the_same_as_ever() -> None:
    neutral = {"ignore_eos": False, "min_new_tokens": 0, "logit_bias": {}, "stop_regex": [], "stream_interval": None}
    assert sampling_of_params(neutral).key == sampling_of_params({}).key
    assert sampling_of_params({"stream_interval": 5}).key == sampling_of_params({}).key
    assert sampling_of_params({"ignore_eos": True}).key != sampling_of_params({}).key


@pytest.mark.parametrize(
    ("steering", "message"),
    [
        (Steering(min_new_tokens=-1), "min_new_tokens must be in [0, max_new_tokens], got -1."),
        (Steering(min_new_tokens=9), "min_new_tokens must be in [0, max_new_tokens(5)], got 9."),
        (Steering(logit_bias=(("1000", 1.0),)), "logit_bias must has keys in [0, 999], got 1000."),
        (Steering(logit_bias=(("a", 1.0),)), "invalid literal for int() with base 10: 'a'"),
        (Steering(logit_bias=(("1", float("nan")),)), "logit_bias.1: nan is not modelled"),
        (Steering(stop_regex=("(",)), "Internal server error: missing ), unterminated subpattern at position 0"),
    ],
)
def test_what_is_out_of_range_is_refused_in_the_releases_words(steering: Steering, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_ranges(Sampling(max_new_tokens=5, steering=steering), PROFILE.sampling, vocab_size=1_000)
    assert str(caught.value).startswith(message)


def test_0_5_20_limits_stop_patterns() -> None:
    many, long = Steering(stop_regex=("a",) * 33), Steering(stop_regex=("é" * 129,))
    wire = load("sglang-0.5.20").sampling
    with pytest.raises(RequestError, match=r"^at most 32 stop_regex patterns are allowed, got 33$"):
        check_ranges(Sampling(steering=many), wire)
    with pytest.raises(RequestError, match=r"^stop_regex is 258 bytes, over the 256-byte limit$"):
        check_ranges(Sampling(steering=long), wire)
    check_ranges(Sampling(steering=many), PROFILE.sampling)


def test_what_a_release_falls_over_is_a_bare_500_of_generate(make_engine: Make, post: Any) -> None:
    answer = post(make_engine(), "/generate", text="hi", sampling_params={"stop_regex": "("})
    assert (answer.status, answer.text) == (500, "Internal Server Error")


@pytest.mark.parametrize(
    ("profile", "step", "ends"),
    [
        ("sglang-0.5.6", 1, [1, 5, 9, 13]),
        ("sglang-0.5.16", 1, [1, 5, 9, 13]),
        ("sglang-0.5.23", 1, [1, 5, 9, 13]),
        ("sglang-0.5.6", 3, [4, 13]),
        ("sglang-0.5.16", 3, [1, 13]),
        ("sglang-0.5.23", 3, [1, 7, 13]),
    ],
)
def test_a_stream_lets_out_pieces_at_the_releases_pace(
    make_engine: Make, post: Any, profile: str, step: int, ends: list[int]
) -> None:
    asked = {"text": "hi", "stream": True, "sampling_params": {"stream_interval": 4}}
    drafts = {"draft_tokens": step, "acceptance": [1.0]} if step > 1 else None
    engine = make_engine(profile=profile, speculative=drafts, default_reply={"tokens": 12})
    events = post(engine, "/generate", **asked).events
    assert [event["meta_info"]["completion_tokens"] for event in events] == ends


def test_a_server_paces_all_its_streams(make_engine: Make, post: Any) -> None:
    plain, slow = (
        post(make_engine(stream_interval=n), "/v1/chat/completions", messages=HI, stream=True).events for n in (1, 100)
    )
    said = ["".join(e["choices"][0]["delta"].get("content") or "" for e in events) for events in (plain, slow)]
    assert said[0] == said[1]
    assert len(slow) < 6 < len(plain)
