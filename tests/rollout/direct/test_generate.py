"""Straight rollouts: ids as sampled, limits kept, nothing lost when the engine or a tool fails."""

import asyncio
import base64
import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.counters import PrefixCacheInfo, SpecInfo
from miles_sim.rollout.errors import AssemblyError, SettingsError, UpstreamResponseError
from miles_sim.rollout.sample import AdapterRef, Sample, Status
from miles_sim.tokenizer import ByteTokenizer


async def test_a_single_turn_is_what_the_engine_said(direct: Any, prompt: Any) -> None:
    tokenizer = direct.engine.tokenizer
    sample = await direct()
    asked = tokenizer.render(prompt)
    said = [*tokenizer.encode("forty-two"), tokenizer.text_stop_id]
    assert sample.tokens == [*asked, *said]
    assert sample.response == "forty-two"
    assert sample.response_length == len(said)
    assert sample.loss_mask == [1] * len(said)
    assert sample.rollout_log_probs == [-token / 1000 for token in said]
    assert sample.status is Status.COMPLETED
    assert sample.weight_versions == ["0"]
    assert sample.spec_info == SpecInfo(len(said), 3 * len(said), len(said), len(said))
    assert sample.prefix_cache_info == PrefixCacheInfo(0, len(asked))
    assert (sample.index, sample.rollout_id) == (3, None)
    (request,) = direct.engine.asked
    assert request == {
        "input_ids": asked,
        "sampling_params": {"max_new_tokens": 100, "temperature": 1.0},
        "return_logprob": True,
    }
    sample.validate()


async def test_the_input_stays_as_it_is_and_shares_nothing(direct: Any, prompt: Any) -> None:
    given_sample = Sample(index=3, prompt=prompt, metadata={"own": [1]})
    before = copy.deepcopy(given_sample)
    sample = await direct(given_sample)
    assert given_sample == before
    assert sample.metadata["own"] == [1]
    assert sample.metadata["own"] is not given_sample.metadata["own"]


async def test_a_string_prompt_is_encoded_and_ids_are_taken_as_they_are(direct: Any) -> None:
    tokenizer = direct.engine.tokenizer
    text = "<|im_start|>assistant\n"
    sample = await direct(Sample(index=0, prompt=text))
    assert direct.engine.asked[0]["input_ids"] == tokenizer.encode(text)
    piece = 300  # a sampled-only id: no rendering of any prompt has it
    await direct(Sample(index=0, prompt=text, tokens=[piece, *tokenizer.encode(text)]))
    assert direct.engine.asked[1]["input_ids"][0] == piece
    assert sample.response == "forty-two"


async def test_siblings_never_share_sampling_parameters(direct: Any) -> None:
    """A resumed sibling's budget is its own."""
    direct.engine.abort_at = {0: 4}
    shared = {"max_new_tokens": 6, "stop": ["x"]}
    broken = await direct(sampling_params=shared)
    await direct(broken, sampling_params=shared)
    await direct(sampling_params=shared)
    assert shared == {"max_new_tokens": 6, "stop": ["x"]}
    assert [asked["sampling_params"]["max_new_tokens"] for asked in direct.engine.asked] == [6, 2, 6]


async def test_tools_are_called_and_answers_are_masked(
    direct: Any, tools: Callable[..., Any], calls: Callable[[int], str], prompt: Any
) -> None:
    engine, tokenizer = direct.engine, direct.engine.tokenizer
    engine.replies = [calls(6), calls(2), "done"]
    sample = await direct(tools=tools())
    assert [len(engine.asked), sample.status] == [3, Status.COMPLETED]
    trained = [t for t, bit in zip(sample.tokens[-sample.response_length :], sample.loss_mask, strict=True) if bit]
    stop = tokenizer.text_stop_id
    assert trained == [t for reply in engine.replies for t in [*tokenizer.encode(reply), stop]]
    for before, after in zip(engine.asked, engine.asked[1:], strict=False):
        assert after["input_ids"][: len(before["input_ids"])] == before["input_ids"]
    assert "tool\n42" in sample.response
    assert "tool\n14" in sample.response
    assert sample.weight_versions == ["0", "1", "2"]
    assert sample.prefix_cache_info.cached_tokens == 3
    assert sample.prefix_cache_info.total_prompt_tokens == sum(len(asked["input_ids"]) for asked in engine.asked)
    assert [segment["turn"] for segment in sample.metadata["lifecycle"]] == [1, 2, 3]
    spec = tools().specs
    assert engine.asked[0]["input_ids"] == tokenizer.render(prompt, tools=spec)
    sample.validate()


async def test_a_stop_token_that_opens_the_answer_is_not_doubled(
    directs: Callable[..., Any], tools: Callable[..., Any], calls: Callable[[int], str]
) -> None:
    direct = directs("delimiter")
    direct.engine.replies = [calls(6), "done"]
    sample = await direct(tools=tools())
    sample.validate()
    stop, opener = direct.engine.tokenizer.text_stop_id, direct.engine.tokenizer.special_ids["<|observation|>"]
    second = direct.engine.asked[1]["input_ids"]
    assert stop not in second[len(direct.engine.asked[0]["input_ids"]) :]
    assert second.count(opener) == 1


async def test_messages_are_recorded_if_asked_for(
    direct: Any, tools: Callable[..., Any], calls: Callable[[int], str], prompt: Any
) -> None:
    direct.engine.replies = [calls(6), "done"]
    direct.settings = replace(direct.settings, record_messages=True)
    sample = await direct(tools=tools())
    assert [message["role"] for message in sample.metadata["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert sample.metadata["messages"][2] == {
        "role": "tool", "tool_call_id": "call_1_0", "content": "42", "name": "times"
    }  # fmt: skip
    direct.engine.asked.clear()
    direct.engine.abort_at = {1: 2}
    broken = await direct(tools=tools())
    assert broken.metadata["messages"][-1]["content"] == "do"
    direct.engine.abort_at = {}
    assert (await direct(broken, tools=tools())).metadata["messages"] == sample.metadata["messages"]


@given(
    reply=st.text(alphabet="ab ü漢", min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 9), max_size=4),
    turns=st.integers(0, 3),
)
async def test_a_rollout_that_was_broken_off_ends_as_if_it_never_was(
    directs: Callable[..., Any],
    tools: Callable[..., Any],
    calls: Callable[[int], str],
    reply: str,
    cuts: list[int],
    turns: int,
) -> None:
    def fresh() -> Any:
        direct = directs()
        direct.engine.replies = [*(calls(n) for n in range(turns)), reply]
        return direct

    whole = await fresh()(tools=tools())
    direct = fresh()
    sample = None
    for cut in cuts:
        direct.engine.abort_at = {len(direct.engine.asked): cut}
        sample = await direct(sample, tools=tools())
        assert sample.status is Status.ABORTED
        sample.validate()
    direct.engine.abort_at = {}
    sample = await direct(sample, tools=tools())
    for name in ("tokens", "response", "response_length", "loss_mask", "rollout_log_probs", "status"):
        assert getattr(sample, name) == getattr(whole, name), name
    sampled = sum(segment["sampled"] for segment in sample.metadata["lifecycle"])
    assert sampled == sample.spec_info.spec_verify_ct == sum(sample.loss_mask)
    assert sample.spec_info.spec_draft_token_num == 3 * sampled
    prompts = sum(len(asked["input_ids"]) for asked in direct.engine.asked)
    assert sample.prefix_cache_info.total_prompt_tokens == prompts
    assert sample.weight_versions == [str(n) for n in range(len(direct.engine.asked))]
    assert [s["node_id"] for s in sample.metadata["lifecycle"]] == list(range(len(direct.engine.asked)))


async def test_what_was_sampled_before_can_be_left_out_of_training(direct: Any) -> None:
    direct.engine.abort_at = {0: 4}
    broken = await direct()
    sample = await direct(broken, mask_resumed=True)
    assert sample.loss_mask == [0] * 4 + [1] * (sample.response_length - 4)
    assert broken.loss_mask == [1] * 4


@given(limit=st.integers(1, 200), budget=st.integers(0, 60))
async def test_no_sample_is_longer_than_its_cap(
    directs: Callable[..., Any], tools: Callable[..., Any], calls: Callable[[int], str], limit: int, budget: int
) -> None:
    direct = directs()
    direct.engine.replies = [calls(1), calls(2), "done"]
    direct.settings = replace(direct.settings, max_seq_len=limit)
    sample = await direct(tools=tools(), sampling_params={"max_new_tokens": budget})
    assert len(sample.tokens) <= limit
    assert all(asked["sampling_params"]["max_new_tokens"] <= budget for asked in direct.engine.asked)
    done = direct.engine.tokenizer.encode("done") == sample.tokens[-5:-1]
    assert (sample.status is Status.TRUNCATED) == (not done)
    sample.validate()


@pytest.mark.parametrize(
    ("fields", "halted"),
    [({"sampling_params": {"max_new_tokens": 0}}, "max_new_tokens"), ({"max_seq_len": 5}, "max_seq_len")],
)
async def test_without_room_nothing_is_asked(direct: Any, fields: Any, halted: str) -> None:
    if "max_seq_len" in fields:
        direct.settings = replace(direct.settings, max_seq_len=fields.pop("max_seq_len"))
    sample = await direct(**fields)
    assert (sample.status, sample.metadata["halted"], sample.response_length) == (Status.TRUNCATED, halted, 0)
    assert direct.engine.asked == []


async def test_a_budget_that_was_used_up_before_is_not_asked_for_again(direct: Any) -> None:
    direct.engine.abort_at = {0: 4}
    sample = await direct(await direct(), sampling_params={"max_new_tokens": 3})
    assert (len(direct.engine.asked), sample.status, sample.response) == (1, Status.TRUNCATED, "fort")


async def test_turns_are_counted_across_a_break(direct: Any, tools: Callable[..., Any], calls: Any) -> None:
    direct.engine.replies = [calls(n) for n in range(5)]
    direct.engine.abort_at = {1: 3}
    few = tools(max_turns=3)
    sample = await direct(await direct(tools=few), tools=few)
    assert sample.status is Status.TRUNCATED
    assert sample.metadata["halted"] == "max_turns"
    finished = [segment for segment in sample.metadata["lifecycle"] if segment["finish_reason"] == "stop"]
    assert len(finished) == 3
    assert sample.tokens[-1] == direct.engine.tokenizer.text_stop_id


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError("sandbox gone"), {"type": "OSError", "message": "sandbox gone"}),
        (asyncio.CancelledError(), {"type": "CancelledInsideError", "message": "cancelled from within"}),
    ],
)
async def test_a_tool_that_raises_loses_nothing_that_was_sampled(
    direct: Any, tools: Any, calls: Any, error: BaseException, told: dict[str, str]
) -> None:
    async def broken(name: str, arguments: dict[str, Any]) -> str:
        raise error

    direct.engine.replies = [calls(6)]
    sample = await direct(tools=tools(execute=broken))
    assert sample.status is Status.COMPLETED
    assert sample.metadata["agent_error"] == told
    assert sum(sample.loss_mask) == sample.response_length > 0


async def test_a_parser_that_raises_loses_nothing_that_was_sampled(direct: Any, tools: Any, calls: Any) -> None:
    class Broken:
        def parse_non_stream(self, full_text: str) -> Any:
            raise ValueError("bad call")

    direct.engine.replies = [calls(6)]
    sample = await direct(tools=tools(parser=Broken()))
    assert sample.status is Status.COMPLETED
    assert sample.metadata["agent_error"] == {"type": "ValueError", "message": "bad call"}
    assert sum(sample.loss_mask) == sample.response_length > 0


async def test_a_template_that_refuses_an_answer_loses_nothing_that_was_sampled(
    direct: Any, tools: Any, calls: Any
) -> None:
    class Refusing(ByteTokenizer):
        def extend(self, *args: Any, **options: Any) -> list[int]:
            raise TypeError("no tool messages here")

    direct.engine.replies = [calls(6)]
    sample = await direct(tools=tools(), tokenizer=Refusing())
    assert sample.status is Status.COMPLETED
    assert sample.metadata["agent_error"] == {"type": "TypeError", "message": "no tool messages here"}
    assert sum(sample.loss_mask) == sample.response_length > 0


@pytest.mark.parametrize("status", [500, 503, 408, 429])
async def test_an_engine_that_fails_leaves_a_sample_to_go_on_with(
    direct: Any, tools: Any, calls: Any, status: int
) -> None:
    direct.engine.replies = [calls(6), "done"]
    direct.engine.instead = lambda number: httpx.Response(status, text="later") if number == 1 else None
    broken = await direct(tools=tools())
    assert broken.status is Status.ABORTED
    assert broken.metadata["engine_error"]["type"] == "UpstreamTransportError"
    assert f"status {status}: later" in broken.metadata["engine_error"]["message"]
    sample = await direct(broken, tools=tools())
    assert (sample.status, "engine_error" in sample.metadata) == (Status.COMPLETED, False)
    assert direct.engine.asked[2]["input_ids"] == direct.engine.asked[1]["input_ids"]


async def test_an_engine_that_is_not_there_is_one_aborted_sample(direct: Any) -> None:
    def refuse(number: int) -> httpx.Response:
        raise httpx.ConnectError("refused")

    direct.engine.instead = refuse
    sample = await direct()
    assert (sample.status, sample.response_length, sample.rollout_log_probs) == (Status.ABORTED, 0, [])
    told = {"type": "UpstreamTransportError", "message": "engine: ConnectError: refused"}
    assert sample.metadata["engine_error"] == told
    direct.engine.instead = None
    assert (await direct(sample)).response == "forty-two"


async def test_a_request_that_the_engine_refuses_is_an_error(direct: Any) -> None:
    direct.engine.instead = lambda number: httpx.Response(400, json={"error": "unknown field"})
    with pytest.raises(UpstreamResponseError, match=r"status 400: .*unknown field"):
        await direct()


async def test_an_abort_from_the_queue_is_an_aborted_sample(direct: Any) -> None:
    """It has no logprobs, no counters, no weight version."""
    sparse = {
        "id": "a" * 32, "finish_reason": {"type": "abort", "message": "Abort in waiting queue"}, "completion_tokens": 0
    }  # fmt: skip
    direct.engine.change = lambda body: {"text": "", "output_ids": [], "meta_info": sparse}
    sample = await direct()
    assert (sample.status, sample.response, sample.weight_versions) == (Status.ABORTED, "", [])
    assert "dropped" not in sample.metadata


async def test_ids_that_an_abort_does_not_tell_are_counted(direct: Any) -> None:
    def sparse(body: dict[str, Any]) -> None:
        body["meta_info"].update(finish_reason={"type": "abort"}, output_token_logprobs=None)

    direct.engine.change = sparse
    sample = await direct()
    assert sample.metadata["dropped"] == {"untold": {"turns": 0, "tokens": 10}}
    assert sample.response == ""


async def test_tool_time_is_measured_by_the_clock_that_is_given(direct: Any, tools: Any, calls: Any) -> None:
    direct.engine.replies = [calls(6), calls(2), "done"]
    ticks = iter([10.0, 12.5, 20.0, 21.0])
    sample = await direct(tools=tools(), clock=lambda: next(ticks))
    assert sample.non_generation_time == 3.5


@pytest.mark.parametrize(("ticks", "seconds"), [((10.0, 10.25), 0.25), ((10.0, 9.0), 0.0), (None, 0.0)])
async def test_tool_time_is_what_the_clock_says_and_none_without_one(
    direct: Any, tools: Any, calls: Any, ticks: Any, seconds: float
) -> None:
    direct.engine.replies = [calls(6), "done"]
    clock = None if ticks is None else iter(ticks).__next__
    assert (await direct(tools=tools(), clock=clock)).non_generation_time == seconds


async def test_stop_strings_end_the_text_but_not_the_ids(direct: Any) -> None:
    def stopped(body: dict[str, Any]) -> None:
        body["meta_info"]["finish_reason"] = {"type": "stop", "matched": "y-tw"}

    direct.engine.change = stopped
    sample = await direct()
    assert sample.response == "fort"
    assert sample.response_length == 10


@pytest.mark.parametrize("matched", [7, "", "elsewhere", True, [7], {"id": 7}])
async def test_what_matched_and_does_not_stand_at_the_end_cuts_nothing_off_the_text(direct: Any, matched: Any) -> None:
    direct.engine.change = lambda body: body["meta_info"].update(finish_reason={"type": "stop", "matched": matched})
    sample = await direct()
    assert sample.response == "forty-two<|im_end|>"


@pytest.mark.parametrize(("reason", "status"), [("length", Status.TRUNCATED), ("abort", Status.ABORTED)])
async def test_a_call_in_a_reply_that_was_cut_is_not_made(
    direct: Any, tools: Any, calls: Any, reason: str, status: Status
) -> None:
    direct.engine.replies = [calls(6), "done"]
    direct.engine.change = lambda body: body["meta_info"].update(finish_reason={"type": reason})
    sample = await direct(tools=tools())
    assert (sample.status, len(direct.engine.asked)) == (status, 1)


async def test_routing_key_and_adapter_are_named(direct: Any, prompt: Any) -> None:
    direct.settings = replace(direct.settings, lora_path="lora", routing_replay=False, indexer_replay=True)

    def with_indexer(reply: Any) -> None:
        meta = reply["meta_info"]
        rows = bytes(4 * (meta["prompt_tokens"] + meta["completion_tokens"] - 1))
        meta["indexer_topk"] = base64.b64encode(rows).decode()

    direct.engine.change = with_indexer
    await direct(Sample(index=0, prompt=prompt, routing_key="k1"))
    await direct(Sample(index=0, prompt=prompt, adapter=AdapterRef("a", 2)))
    assert direct.engine.headers[0]["x-smg-routing-key"] == "k1"
    assert "x-smg-routing-key" not in direct.engine.headers[1]
    assert [asked["lora_path"] for asked in direct.engine.asked] == ["lora", "__miles_slot_2"]
    assert direct.engine.asked[0]["return_indexer_topk"] is True


@pytest.mark.parametrize(
    ("sample", "fields", "error", "named"),
    [
        (Sample(status=Status.COMPLETED), {}, AssemblyError, "status: 'completed' is over"),
        (Sample(prompt=""), {}, AssemblyError, "prompt: '' has no ids"),
        (Sample(multimodal_inputs={"images": [1]}), {}, AssemblyError, r"multimodal_inputs\.images"),
        (Sample(metadata={"leaf": 1}), {}, AssemblyError, r"metadata\.leaf: set by the rollout"),
        (Sample(prompt="x", metadata={"lifecycle": 3}), {}, AssemblyError, r"metadata\.lifecycle: 3"),
        (Sample(tokens=[1, 2], response_length=1), {}, AssemblyError, "rollout_log_probs: None, though 1"),
        (Sample(tokens=[1], response_length=2), {}, AssemblyError, "response_length: 2"),
        (
            Sample(
                tokens=[1, 2],
                response_length=1,
                rollout_log_probs=[0.0],
                metadata={"lifecycle": [{"finish_reason": "stop", "span": [1, 2]}]},
            ),
            {},
            AssemblyError,
            "the last reply came to its end",
        ),
        (None, {"sampling_params": {}}, SettingsError, "max_new_tokens: None, and max_seq_len: None"),
        (None, {"sampling_params": {"max_new_tokens": 1.5}}, SettingsError, "max_new_tokens: 1.5"),
        (None, {"sampling_params": {"max_new_tokens": True}}, SettingsError, "max_new_tokens: True"),
        (None, {"sampling_params": {"max_new_tokens": 4, "n": 2}}, SettingsError, "n: 2"),
        (
            None,
            {"sampling_params": {"max_new_tokens": 4, "temperature": math.nan}},
            SettingsError,
            r"sampling_params\.temperature: nan",
        ),
    ],
)
async def test_what_cannot_be_served_is_refused_before_anything_is_asked(
    direct: Any, sample: Sample | None, fields: Any, error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        await direct(sample, **fields)
    assert direct.engine.asked == []


async def test_an_id_that_was_answered_before_is_refused(direct: Any, calls: Any, tools: Any) -> None:
    direct.engine.replies = [calls(1), "forty-two"]

    def same(reply: Any) -> None:
        reply["meta_info"]["id"] = "again"

    direct.engine.change = same
    with pytest.raises(UpstreamResponseError, match=r"meta_info\.id: 'again' is that of an earlier reply"):
        await direct(tools=tools())


async def test_a_body_that_is_not_coded_as_it_says_is_a_reply_that_cannot_be_read(direct: Any) -> None:
    headers = {"content-encoding": "gzip"}
    direct.engine.instead = lambda number: httpx.Response(200, headers=headers, stream=httpx.ByteStream(b"{}"))
    with pytest.raises(UpstreamResponseError, match="body: not coded as it says"):
        await direct()


async def test_ids_that_aborts_do_not_tell_add_up_over_all_of_them(direct: Any) -> None:
    def sparse(body: dict[str, Any]) -> None:
        body["meta_info"].update(finish_reason={"type": "abort"}, output_token_logprobs=None)

    direct.engine.change = sparse
    broken = await direct(await direct())
    direct.engine.change = None
    sample = await direct(broken)
    assert sample.metadata["dropped"] == {"untold": {"turns": 0, "tokens": 20}}
    assert sample.response == "forty-two"


@pytest.mark.parametrize("prompt", ["what?", [{"role": "user", "content": "what?"}]])
async def test_recorded_messages_are_the_conversation_in_words(direct: Any, prompt: Any) -> None:
    """A string prompt is what the user said; a reply has no stop token in it."""
    direct.settings = replace(direct.settings, record_messages=True)
    tokens = direct.engine.tokenizer.render([{"role": "user", "content": "what?"}])
    sample = await direct(Sample(index=0, prompt=prompt, tokens=tokens))
    said = {"role": "assistant", "content": "forty-two"}
    assert sample.metadata["messages"] == [{"role": "user", "content": "what?"}, said]


async def test_a_data_sets_messages_stay_where_none_are_recorded(direct: Any, prompt: Any) -> None:
    given_sample = Sample(index=0, prompt=prompt, metadata={"messages": ["own"]})
    assert (await direct(given_sample)).metadata["messages"] == ["own"]
    direct.settings = replace(direct.settings, record_messages=True)
    with pytest.raises(AssemblyError, match=r"metadata\.messages: set by the rollout"):
        await direct(given_sample)


async def test_each_request_waits_as_long_as_the_settings_say_and_is_json(direct: Any) -> None:
    seen: list[httpx.Request] = []

    async def engine(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return direct.engine(request)  # type: ignore[no-any-return]

    direct.settings = replace(direct.settings, request_timeout=12.5)
    async with httpx.AsyncClient(transport=httpx.MockTransport(engine)) as client:
        await direct(client=client)
    (request,) = seen
    assert str(request.url) == "http://engine/generate"
    assert request.headers["content-type"] == "application/json"
    assert set(request.extensions["timeout"].values()) == {12.5}


async def test_the_template_is_told_the_same_in_every_turn(
    direct: Any, tools: Callable[..., Any], calls: Callable[[int], str]
) -> None:
    """Templates may render a tool's answer by the tools there are."""
    told: list[dict[str, Any]] = []

    class Noting(ByteTokenizer):
        def render(self, messages: Any, **options: Any) -> list[int]:
            told.append(options)
            return super().render(messages, **options)

        def extend(self, prefix: Any, messages: Any, **options: Any) -> list[int]:
            told.append(options)
            return super().extend(prefix, messages, **options)

    direct.engine.replies = [calls(6), "done"]
    for given_options, seen in (({}, None), ({"thinking": False}, {"thinking": False})):
        told.clear()
        direct.settings = replace(direct.settings, template_options=given_options)
        await direct(tools=tools(), tokenizer=Noting())
        asked = [one for one in told if "tools" in one and one.get("add_generation_prompt", True)]
        assert len(asked) == 2
        assert all((one["tools"], one["template_options"]) == (tools().specs, seen) for one in asked)
