"""Sampling parameters have one spelling, and ranges that are refused in the release's words."""

import pytest

from miles_sim.engine.errors import RequestError
from miles_sim.engine.profiles import load
from miles_sim.engine.request import ChatRequest
from miles_sim.engine.sampling import Sampling, check_ranges, sampling_of

PROFILE = load("sglang-0.5.16")


def request(**fields: object) -> ChatRequest:
    return ChatRequest.model_validate({"messages": [{"role": "user", "content": "hi"}], **fields})


def test_two_spellings_of_one_wish_are_equal() -> None:
    a = sampling_of(request(max_tokens=5, stop="x", temperature=1), PROFILE)
    b = sampling_of(request(max_completion_tokens=5, max_tokens=9, stop=["x"], logprobs=True), PROFILE)
    assert a == b
    assert a.key == b.key


@pytest.mark.parametrize("field", ["seed", "max_tokens", "top_k"])
def test_a_parameter_more_asks_another_thing(field: str) -> None:
    assert sampling_of(request(**{field: 3}), PROFILE).key != sampling_of(request(), PROFILE).key


def test_0_5_6_takes_the_older_bound_first_and_no_seed() -> None:
    asked = request(max_completion_tokens=5, max_tokens=9, seed=3)
    old, present = sampling_of(asked, load("sglang-0.5.6")), sampling_of(asked, PROFILE)
    assert (old.max_new_tokens, old.seed) == (9, None)
    assert (present.max_new_tokens, present.seed) == (5, 3)


def test_tools_count_only_where_they_may_be_called() -> None:
    tools = [{"function": {"name": "look"}}]
    calling = sampling_of(request(tools=tools), PROFILE)
    assert calling.tools is not None
    assert calling.tools[0]["function"] == {"description": None, "name": "look", "parameters": None, "strict": False}
    assert not calling.skip_special_tokens
    assert sampling_of(request(tools=tools, tool_choice="none"), PROFILE).tools is None


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        (Sampling(temperature=-1), "temperature must be non-negative, got -1."),
        (Sampling(top_p=0.0), "top_p must be in (0, 1], got 0.0."),
        (Sampling(min_p=2.0), "min_p must be in [0, 1], got 2.0."),
        (Sampling(top_k=0), "top_k must be -1 (disable) or at least 1, got 0."),
        (Sampling(frequency_penalty=3.0), "frequency_penalty must be in [-2, 2], got 3.0."),
        (Sampling(presence_penalty=-3.0), "presence_penalty must be in [-2, 2], got -3.0."),
        (Sampling(repetition_penalty=3.0), "repetition_penalty must be in [0, 2], got 3.0."),
        (Sampling(max_new_tokens=-1), "max_new_tokens must be at least 0, got -1."),
    ],
)
def test_a_value_out_of_range_is_refused_in_the_releases_words(sampling: Sampling, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_ranges(sampling, load("sglang-0.5.10").sampling)
    assert str(caught.value) == message


def test_the_edges_of_the_ranges_pass() -> None:
    check_ranges(Sampling(temperature=0.0, top_p=1.0, min_p=1.0, top_k=1, max_new_tokens=0), PROFILE.sampling)


def test_a_repetition_penalty_of_0_is_refused_from_0_5_13_on() -> None:
    none = Sampling(repetition_penalty=0.0)
    check_ranges(none, load("sglang-0.5.11").sampling)
    with pytest.raises(
        RequestError, match=r"^repetition_penalty must be in \(0, 2\] \(1\.0 = no penalty\), got 0\.0\.$"
    ):
        check_ranges(none, load("sglang-0.5.13").sampling)
