"""The chat completion has the release's keys, and all its parts agree."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from miles_sim.engine import profiles
from miles_sim.engine.engine import Engine
from miles_sim.engine.errors import CrashError

Make = Callable[..., Engine]
Ask = Callable[..., dict[str, Any]]
TOOLS = [{"type": "function", "function": {"name": "look"}}]
CALLS = {"contains": "call", "reply": {"tokens": 3, "tool_calls": [{"name": "look"}, {"name": "look"}]}}
ONLY_CALL = {"contains": "only", "reply": {"tokens": 0, "tool_calls": [{"name": "look", "arguments": {"at": "x"}}]}}


def choice(answer: dict[str, Any]) -> dict[str, Any]:
    first: dict[str, Any] = answer["choices"][0]
    return first


def test_keys_stand_as_the_release_sends_them(make_engine: Make, ask: Ask) -> None:
    answer = ask(make_engine(), logprobs=False, return_meta_info=False)
    assert list(answer) == ["id", "object", "created", "model", "choices", "usage", "metadata"]
    assert list(choice(answer)) == ["index", "message", "logprobs", "finish_reason", "matched_stop"]
    assert list(choice(answer)["message"]) == ["role", "content", "reasoning_content", "tool_calls"]
    usage = "prompt_tokens,total_tokens,completion_tokens,prompt_tokens_details,reasoning_tokens"
    assert list(answer["usage"]) == usage.split(",")
    assert answer["metadata"] == {"weight_version": "default"}
    assert choice(answer)["logprobs"] is None


def test_what_was_asked_for_comes_last_in_the_choice(make_engine: Make, ask: Ask) -> None:
    first = choice(ask(make_engine(), return_prompt_token_ids=True, input_ids=[5, 6, 7]))
    assert list(first)[-2:] == ["prompt_token_ids", "meta_info"]
    assert first["prompt_token_ids"] == [5, 6, 7]


def test_a_release_that_knows_no_input_ids_renders_the_messages_and_sends_no_meta_info(
    make_engine: Make, ask: Ask
) -> None:
    engine = make_engine(profile="sglang-0.5.10")
    first = choice(ask(engine, input_ids=[5, 6, 7], return_prompt_token_ids=True))
    assert "meta_info" not in first
    assert "prompt_token_ids" not in first
    assert engine.generations[0].prompt_ids == tuple(engine.tokenizer.render([{"role": "user", "content": "hello"}]))


@pytest.mark.parametrize("profile", ["sglang-0.5.16", "miles-rl-0.0.2"])
def test_text_ids_logprobs_and_counts_agree(make_engine: Make, ask: Ask, profile: str) -> None:
    engine = make_engine(profile=profile)
    answer = ask(engine)
    first, meta, truth = choice(answer), choice(answer)["meta_info"], engine.generations[0]
    assert answer["id"] == meta["id"] == truth.id
    triples = meta["output_token_logprobs"]
    assert tuple(token for _, token, _ in triples) == truth.output_ids
    assert tuple(logprob for logprob, _, _ in triples) == truth.logprobs
    assert all(text == engine.tokenizer.decode([token]) for _, token, text in triples)
    assert engine.tokenizer.decode(truth.output_ids[:-1]) == first["message"]["content"]
    assert len(triples) == meta["completion_tokens"] == answer["usage"]["completion_tokens"]
    assert meta["output_token_logprobs_length"] == len(triples)
    assert answer["usage"]["prompt_tokens"] == meta["prompt_tokens"] == len(truth.prompt_ids)
    assert answer["usage"]["total_tokens"] == len(truth.prompt_ids) + len(truth.output_ids)
    assert first["finish_reason"] == "stop"
    assert first["matched_stop"] == truth.output_ids[-1] == meta["finish_reason"]["matched"]
    content = first["logprobs"]["content"]
    assert [entry["logprob"] for entry in content] == list(truth.logprobs)
    assert [bytes(entry["bytes"]).decode() for entry in content] == [text for _, _, text in triples]


def test_tool_calls_hide_the_stop_token_everywhere_but_in_the_ledger(make_engine: Make, ask: Ask) -> None:
    engine = make_engine(rules=[CALLS])
    first = choice(ask(engine, "call", tools=TOOLS))
    assert (first["finish_reason"], first["matched_stop"]) == ("tool_calls", None)
    assert first["meta_info"]["finish_reason"] == {"type": "tool_calls", "matched": None}
    assert engine.generations[0].finish_reason == {"type": "stop", "matched": engine.tokenizer.call_stop_id}
    calls = first["message"]["tool_calls"]
    assert [list(call) for call in calls] == [["id", "index", "type", "function"]] * 2
    assert [call["index"] for call in calls] == [0, 0]
    assert [call["function"] for call in calls] == [{"name": "look", "arguments": "{}"}] * 2
    assert len({call["id"] for call in calls}) == 2
    assert all(len(call["id"]) == 29 and call["id"].startswith("call_") for call in calls)


@pytest.mark.parametrize(
    ("profile", "content"), [("sglang-0.5.16", ""), ("miles-rl-0.0.2", ""), ("sglang-0.5.10", None)]
)
def test_no_text_beside_calls_is_empty_or_null_by_release(
    make_engine: Make, ask: Ask, profile: str, content: str | None
) -> None:
    message = choice(ask(make_engine(profile=profile, rules=[ONLY_CALL]), "only", tools=TOOLS))["message"]
    assert message["content"] == content
    assert message["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": "x"}'}


def test_without_tools_a_block_is_text(make_engine: Make, ask: Ask) -> None:
    for more in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        first = choice(ask(make_engine(rules=[ONLY_CALL]), "only", **more))
        assert first["message"]["tool_calls"] is None
        assert first["message"]["content"].startswith("<tool_call>\n")
        assert first["finish_reason"] == "stop"


def test_a_cut_reply_has_no_matched_stop(make_engine: Make, ask: Ask) -> None:
    first = choice(ask(make_engine(), max_tokens=4))
    assert (first["finish_reason"], first["matched_stop"]) == ("length", None)
    assert first["meta_info"]["finish_reason"] == {"type": "length", "length": 4}


def test_an_aborted_reply_is_a_200_with_what_was_said(make_engine: Make, ask: Ask) -> None:
    engine = make_engine(default_reply={"tokens": 9, "abort_after": 4})
    first = choice(ask(engine))
    assert (first["finish_reason"], first["matched_stop"]) == ("abort", None)
    assert len(engine.generations[0].output_ids) == 4
    assert first["message"]["content"] == engine.tokenizer.decode(engine.generations[0].output_ids)


def test_cached_tokens_details_come_with_cached_tokens_only(make_engine: Make, ask: Ask) -> None:
    engine = make_engine()
    first, again = (ask(engine, return_cached_tokens_details=True) for _ in range(2))
    assert choice(first)["meta_info"]["cached_tokens_details"] is None
    assert "sglext" not in first
    cached = len(engine.generations[0].prompt_ids) - 1
    assert choice(again)["meta_info"]["cached_tokens_details"] == {"device": cached, "host": 0}
    assert again["sglext"] == {"cached_tokens_details": {"device": cached, "host": 0}}


def test_speculative_keys_state_the_truth_and_vanish_without_a_verify_step(make_engine: Make, ask: Ask) -> None:
    engine = make_engine(speculative={"draft_tokens": 4})
    meta = choice(ask(engine))["meta_info"]
    spec = engine.generations[0].spec
    assert spec is not None
    assert meta["spec_accept_rate"] == spec.accepted / spec.drafted
    assert meta["spec_accepted_drafts"] == meta["spec_num_correct_drafts"] == spec.accepted
    assert meta["spec_proposed_drafts"] == meta["spec_num_proposed_drafts"] == spec.drafted
    assert meta["spec_accept_histogram"] == meta["spec_correct_drafts_histogram"] == list(spec.histogram)
    for n in range(8):  # over several lengths: with and without a cut tail
        meta, spec = choice(ask(engine, max_tokens=10 + n))["meta_info"], engine.generations[-1].spec
        assert spec is not None
        assert meta["spec_accept_length"] == (10 + n) / spec.verify_ct
    one = choice(ask(engine, max_tokens=1))["meta_info"]
    assert not [key for key in one if key.startswith("spec_")]
    assert engine.generations[-1].spec is not None


def test_the_model_is_echoed_and_a_given_rid_is_the_id(make_engine: Make, ask: Ask) -> None:
    answer = ask(make_engine(), model="mine", rid="r-1")
    assert (answer["model"], answer["id"], choice(answer)["meta_info"]["id"]) == ("mine", "r-1", "r-1")


@pytest.mark.parametrize("profile", profiles.names())
def test_several_replies_are_several_choices(make_engine: Make, ask: Ask, profile: str) -> None:
    engine = make_engine(profile=profile)
    answer = ask(engine, n=3)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert answer["id"] == engine.generations[0].id
    assert answer["usage"]["prompt_tokens"] == len(engine.generations[0].prompt_ids)
    assert answer["usage"]["completion_tokens"] == sum(len(g.output_ids) for g in engine.generations)
    assert len({choice["message"]["content"] for choice in answer["choices"]}) == 3


def test_alternatives_of_each_id_come_with_its_logprob(make_engine: Make, ask: Ask) -> None:
    first = choice(ask(make_engine(), top_logprobs=3))
    for entry, row in zip(first["logprobs"]["content"], first["meta_info"]["output_top_logprobs"], strict=True):
        by_text = {text: logprob for logprob, _, text in row}  # in this release one text is told once
        assert [one["logprob"] for one in entry["top_logprobs"]] == list(by_text.values())
        assert len(row) == 3
    assert first["meta_info"]["input_top_logprobs"] == []


def test_ids_of_the_reply_come_from_the_releases_that_have_them(make_engine: Make, ask: Ask) -> None:
    wish = {"return_token_ids": True}
    assert "response_token_ids" not in choice(ask(make_engine(), **wish))
    engine = make_engine(profile="sglang-0.5.20")
    first = choice(ask(engine, **wish))
    assert first["response_token_ids"] == list(engine.generations[0].output_ids)
    assert list(first)[-3:] == ["prompt_token_ids", "response_token_ids", "meta_info"]


@pytest.mark.parametrize(("profile", "twice"), [("sglang-0.5.16", True), ("sglang-0.5.20", False)])
def test_routed_experts_come_once_or_twice_by_release(make_engine: Make, ask: Ask, profile: str, twice: bool) -> None:
    answer = ask(make_engine(profile=profile, experts={}), return_routed_experts=True)
    rows = choice(answer)["meta_info"]["routed_experts"]
    assert answer.get("sglext") == ({"routed_experts": rows} if twice else None)


def test_details_of_speculation_are_told_in_nine_fields(make_engine: Make, ask: Ask) -> None:
    engine = make_engine(profile="sglang-0.5.23", speculative={})
    told = ask(engine, return_spec_tokens_details=True)["sglext"]["spec_tokens_details"]
    spec = engine.generations[0].spec
    assert spec is not None
    assert (told["spec_num_correct_drafts"], told["spec_verify_ct"]) == (spec.accepted, spec.verify_ct)
    assert len(told) == 9
    several = ask(engine, return_spec_tokens_details=True, n=2)["sglext"]["spec_tokens_details"]
    assert len(several) == 2


@pytest.mark.parametrize("profile", profiles.names())
def test_cached_ids_are_told_in_usage_where_the_server_reports_them(make_engine: Make, ask: Ask, profile: str) -> None:
    engine = make_engine(profile=profile, cache_report=True)
    first, again = (ask(engine)["usage"]["prompt_tokens_details"] for _ in range(2))
    assert first == ({"cached_tokens": 0} if profile == "sglang-0.5.23" else None)
    assert again == {"cached_tokens": engine.generations[1].cached_tokens}
    assert ask(make_engine(profile=profile))["usage"]["prompt_tokens_details"] is None


@pytest.mark.parametrize("profile", profiles.names())
def test_a_waiting_request_that_is_aborted_is_answered_as_the_release_does(make_engine: Make, profile: str) -> None:
    engine = make_engine(profile=profile, latency={"clock": "virtual"}, max_running_requests=1)
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "return_meta_info": True}).encode()

    async def told() -> Any:
        running, waiting = (asyncio.ensure_future(engine.chat(body)) for _ in range(2))
        await asyncio.sleep(0)
        engine.scheduler.abort(list(engine.scheduler.flights)[1])
        await running
        return json.loads(await waiting)

    if profile == "sglang-0.5.6":
        with pytest.raises(CrashError, match=r"^Internal server error: 'prompt_tokens'$"):
            asyncio.run(told())
        return
    answer = asyncio.run(told())
    first = choice(answer)
    assert first["finish_reason"] == "abort"
    assert (first["message"]["content"] or "") == ""
    assert answer["usage"]["total_tokens"] == 0
    if "meta_info" in first:
        assert list(first["meta_info"]) == [key for key in engine.profile.queue_abort if "logprobs" not in key]


@pytest.mark.parametrize("profile", ["sglang-0.5.6", "sglang-0.5.16", "sglang-0.5.23"])
def test_ids_of_a_thought_are_counted_where_the_release_counts_them(make_engine: Make, ask: Ask, profile: str) -> None:
    engine = make_engine(profile=profile, tokenizer="qwen3", default_reply={"reasoning": "Let me see.", "text": "Yes."})
    answer = ask(engine)
    assert choice(answer)["message"]["content"].strip() == "Yes."
    assert choice(answer)["message"]["reasoning_content"].strip() == "Let me see."
    (end,) = engine.tokenizer.encode("</think>")
    thought = engine.generations[0].output_ids.index(end) + 1
    if profile == "sglang-0.5.6":
        assert answer["usage"]["reasoning_tokens"] == 0
        return
    assert (
        answer["usage"]["reasoning_tokens"] == choice(answer)["meta_info"].get("reasoning_tokens", thought) == thought
    )
    if profile == "sglang-0.5.23":
        assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": thought}
    silent = ask(engine, chat_template_kwargs={"enable_thinking": False})
    assert silent["usage"]["reasoning_tokens"] == 0
