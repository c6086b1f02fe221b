"""Scoring by prefill: the whole response, and of the prompt only its last id."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.direct.prefill import read_scores, score, scoring_body
from miles_sim.rollout.errors import AssemblyError, UpstreamResponseError
from miles_sim.rollout.sample import Sample, Status
from miles_sim.rollout.settings import RolloutSettings


def sample(prompt: int = 3, response: int = 2, **fields: Any) -> Sample:
    values = {"tokens": list(range(10, 10 + prompt + response)), "response_length": response}
    return Sample(index=0, **{**values, "rollout_log_probs": [-9.0] * response, "status": Status.COMPLETED, **fields})


async def scored(given: Sample, change: Any = None) -> tuple[Sample, list[dict[str, Any]]]:
    asked: list[dict[str, Any]] = []

    def engine(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        asked.append(body)
        start = body["logprob_start_len"]
        told = [[None if n == 0 else -token / 100, token, None] for n, token in enumerate(body["input_ids"][start:])]
        meta_info = {"input_token_logprobs": change(told) if change else told}
        return httpx.Response(200, json={"text": "", "meta_info": meta_info})

    async with httpx.AsyncClient(transport=httpx.MockTransport(engine)) as client:
        result = await score(
            given,
            settings=RolloutSettings(lora_path="l"),
            sampling_params={"temperature": 1.0, "max_new_tokens": 50},
            engine_url="http://engine",
            client=client,
        )
    return result, asked


async def test_logprobs_are_those_of_the_prefill_and_masked_ids_keep_zero() -> None:
    given = sample(loss_mask=[0, 1])
    found, (asked,) = await scored(given)
    assert found.rollout_log_probs == [0.0, -0.14]
    assert found.metadata["rollout_log_probs_source"] == "sglang_prefill_recompute"
    assert given.rollout_log_probs == [-9.0, -9.0]
    assert asked["logprob_start_len"] == 2
    assert asked["lora_path"] == "l"
    assert asked["sampling_params"] == {"temperature": 0, "max_new_tokens": 0, "skip_special_tokens": False}


@given(prompt=st.integers(2, 50), response=st.integers(1, 50))
def test_the_prompt_stays_in_the_cache(prompt: int, response: int) -> None:
    """Logprobs from position 0 on would have the engine compute the whole prompt anew."""
    body = scoring_body(sample(prompt, response), {}, RolloutSettings())
    assert body["logprob_start_len"] == prompt - 1 > 0
    assert len(body["input_ids"]) - body["logprob_start_len"] == response + 1


@pytest.mark.parametrize("given", [sample(response=0, tokens=[1]), sample(status=Status.ABORTED)])
async def test_nothing_to_score_asks_nothing(given: Sample) -> None:
    found, asked = await scored(given)
    assert (found, asked) == (given, [])
    assert found is not given


def test_one_prompt_id_is_enough() -> None:
    assert scoring_body(sample(prompt=1), {}, RolloutSettings())["logprob_start_len"] == 0


def test_a_response_without_a_prompt_cannot_be_scored() -> None:
    with pytest.raises(AssemblyError, match="tokens: 2 ids, all of the response"):
        scoring_body(sample(prompt=0), {}, RolloutSettings())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda told: None, "input_token_logprobs: None"),
        (lambda told: told[-1:], "1 entries for a response of 2 ids"),
        (
            lambda told: [*told[:-1], [-1, 99, None]],
            r"input_token_logprobs\[2\]: \[-1, 99, None\] is not \[logprob, 14",
        ),
        (lambda told: [*told[:-1], [-1]], r"input_token_logprobs\[2\]: \[-1\] is not \[logprob, 14"),
        (lambda told: [*told[:-1], 14], r"input_token_logprobs\[2\]: 14 is not \[logprob, 14"),
        (lambda told: [*told[:-1], [None, 14, None]], r"input_token_logprobs\[2\]\[0\]: None"),
        (lambda told: [*told[:-1], [1, 14, None]], r"input_token_logprobs\[2\]\[0\]: 1 "),
    ],
)
async def test_scores_that_do_not_fit_are_refused(change: Any, named: str) -> None:
    with pytest.raises(UpstreamResponseError, match=named):
        await scored(sample(), change)


@pytest.mark.parametrize(("body", "named"), [(b"[]", "body: "), (b"{}", "meta_info: "), (b"no", "body: ")])
def test_a_body_without_meta_info_is_refused(body: bytes, named: str) -> None:
    with pytest.raises(UpstreamResponseError, match=f"^{named}"):
        read_scores(body, [1])


async def test_scoring_waits_as_long_as_the_settings_say_and_goes_where_the_sample_was_sampled() -> None:
    seen: list[httpx.Request] = []

    def engine(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"meta_info": {"input_token_logprobs": [[-0.5, 13, None], [-0.25, 14, None]]}})

    async with httpx.AsyncClient(transport=httpx.MockTransport(engine)) as client:
        found = await score(
            sample(routing_key="k"),
            settings=RolloutSettings(request_timeout=12.5),
            sampling_params={},
            engine_url="http://engine/",
            client=client,
        )
    assert found.rollout_log_probs == [-0.5, -0.25]
    (request,) = seen
    assert str(request.url) == "http://engine/generate"
    assert request.headers["x-smg-routing-key"] == "k"
    assert set(request.extensions["timeout"].values()) == {12.5}


def test_an_entry_needs_no_more_than_a_logprob_and_an_id() -> None:
    body = json.dumps({"meta_info": {"input_token_logprobs": [[-0.5, 7], [0, 8]]}}).encode()
    assert read_scores(body, [7, 8]) == [-0.5, 0.0]
    assert read_scores(body, [8]) == [0.0]
    with pytest.raises(UpstreamResponseError, match=r"input_token_logprobs\[1\]: \[0, 8\] is not \[logprob, 9"):
        read_scores(body, [9])


def test_the_request_scores_and_samples_nothing() -> None:
    assert scoring_body(sample(), {"top_k": 3}, RolloutSettings()) == {
        "input_ids": [10, 11, 12, 13, 14],
        "sampling_params": {"top_k": 3, "max_new_tokens": 0, "temperature": 0, "skip_special_tokens": False},
        "return_logprob": True,
        "logprob_start_len": 2,
    }
