"""Profiles are complete, typed data; the tables here are what the releases' own front ends answered."""

from collections.abc import Callable
from typing import Any

import pytest

from miles_sim.document import DocumentError, read
from miles_sim.engine import profiles
from miles_sim.engine.engine import Engine

PROFILES = (
    "miles-rl-0.0.2",
    "sglang-0.5.6",
    "sglang-0.5.10",
    "sglang-0.5.11",
    "sglang-0.5.13",
    "sglang-0.5.16",
    "sglang-0.5.20",
    "sglang-0.5.23",
)
TABLE = """
id                            always            6-
finish_reason                 always            6-
prompt_tokens                 always            6-
weight_version                always            6-
total_retractions             always            6-11
num_retractions               always            13-
num_running_reqs              always            13-13
num_waiting_reqs              always            13-13
forward_entry_time            metrics           10-
prefill_finished_time         metrics           10-
queue_time                    metrics           6-
prefill_launch_delay          metrics           6-6
prefill_waiting_latency       metrics           10-11
prefill_launch_latency        metrics           6-11
input_token_logprobs          logprobs          6-
output_token_logprobs         logprobs          6-
output_token_logprobs_length  logprobs          10-
input_top_logprobs            top               6-
output_top_logprobs           top               6-
input_token_ids_logprobs      ids               6-
output_token_ids_logprobs     ids               6-
reasoning_tokens              always            10-
completion_tokens             always            6-
cached_tokens                 always            6-
weight_versions               finished          20-
cached_tokens_details         always            10-
routed_experts                experts           10-
indexer_topk                  indexer           13-
dp_rank                       always            10-
e2e_latency                   finished          10-
spec_accept_rate              spec              6-
spec_accept_length            spec              6-
spec_verify_ct                spec              6-6
spec_accept_token_num         spec              6-10
spec_draft_token_num          spec              6-10
e2e_latency                   finished          6-6
spec_num_correct_drafts       spec              13-
spec_num_proposed_drafts      spec              13-
spec_accepted_drafts          spec              11-11
spec_proposed_drafts          spec              11-11
spec_verify_ct                spec              10-
spec_accepted_drafts          spec              13-20
spec_proposed_drafts          spec              13-20
spec_correct_drafts_histogram spec              13-
spec_accept_histogram         spec              10-20
request_received_ts           metrics,finished  6-
first_token_latency           metrics,finished  23-
request_sent_to_scheduler_ts  metrics,finished  6-6
decode_finished_ts            metrics,finished  6-6
api_server_dispatch_finish_ts metrics,finished  10-
request_finished_ts           metrics,finished  10-
inference_time                metrics,finished  6-11
decode_throughput             metrics,decoded   10-20
response_sent_to_client_ts    sent              6-
"""
"""Key, when, and the releases (0.5.N; the fork is as 0.5.10) that have it at this place."""
SHORT = {
    "top": {"logprobs", "top_logprobs"},
    "ids": {"logprobs", "token_ids_logprobs"},
    "spec": {"speculative"},
    "experts": {"routed_experts", "finished"},
    "indexer": {"indexer_topk", "finished"},
    "metrics,decoded": {"metrics", "finished", "decoded"},
    "always": set(),
}


def release_number(name: str) -> int:
    return 10 if name.startswith("miles-rl") else int(name.rpartition(".")[2])


def expected_keys(name: str, holds: set[str]) -> list[str]:
    keys = []
    for line in TABLE.strip().splitlines():
        key, when, span = line.split()
        first, _, last = span.partition("-")
        needed = SHORT.get(when, set(when.split(",")))
        if int(first) <= release_number(name) <= int(last or 99) and needed <= holds:
            keys.append(key)
    return keys


WHOLE = {"finished", "sent"}
SITUATIONS = [
    set(),
    {"sent"},
    WHOLE,
    WHOLE | {"logprobs"},
    WHOLE | {"logprobs", "top_logprobs", "token_ids_logprobs"},
    WHOLE | {"speculative"},
    WHOLE | {"metrics"},
    WHOLE | {"metrics", "decoded", "logprobs", "speculative", "routed_experts", "indexer_topk"},
    {"metrics"},
]


def test_the_known_profiles_are_listed_by_family_and_release() -> None:
    assert profiles.names() == PROFILES


def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(profiles.ProfileError, match=r"'sglang-9' is none of miles-rl-0\.0\.2, sglang-0\.5\.6"):
        profiles.load("sglang-9")


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("holds", SITUATIONS, ids=lambda holds: "+".join(sorted(holds)) or "under way")
def test_meta_info_has_the_releases_keys_in_its_order(name: str, holds: set[str]) -> None:
    assert [key for key, _ in profiles.load(name).layout(frozenset(holds))] == expected_keys(name, holds)


@pytest.mark.parametrize("name", PROFILES)
def test_without_a_verify_step_only_0_5_6_speaks_of_them(name: str) -> None:
    keys = {key for key, _ in profiles.load(name).layout(frozenset(WHOLE | {"idle"}))}
    zeros = {"spec_accept_rate", "spec_accept_length", "spec_verify_ct"} if name == "sglang-0.5.6" else set()
    assert {key for key in keys if key.startswith("spec_")} == zeros


_SPARSE = "id,finish_reason,weight_version,e2e_latency,input_token_logprobs,output_token_logprobs,"
QUEUE_ABORT = {
    "sglang-0.5.6": "id,finish_reason,input_token_logprobs,output_token_logprobs,completion_tokens",
    "sglang-0.5.20": _SPARSE.replace("e2e_latency,", "e2e_latency,weight_versions,")
    + "output_token_logprobs_length,completion_tokens",
    "sglang-0.5.16": _SPARSE + "output_token_logprobs_length,completion_tokens",
}
QUEUE_ABORT["sglang-0.5.23"] = QUEUE_ABORT["sglang-0.5.20"]


@pytest.mark.parametrize("name", PROFILES)
def test_a_request_aborted_in_the_queue_has_the_few_keys_of_its_release(name: str) -> None:
    expected = [*(QUEUE_ABORT.get(name) or QUEUE_ABORT["sglang-0.5.16"]).split(","), "response_sent_to_client_ts"]
    profile = profiles.load(name)
    assert [key for key, _ in profile.layout(frozenset({"queue_abort", "logprobs"}))] == expected
    without = [key for key, _ in profile.layout(frozenset({"queue_abort"}))]
    assert without == [key for key in expected if "logprobs" not in key]


CHAT_FIELDS = """
return_routed_experts 10
return_cached_tokens_details 10
routed_dp_rank 10
parallel_tool_calls 10
routed_experts_start_len 13 fork
input_ids 13 fork
return_prompt_token_ids 13 fork
return_meta_info 13 fork
session_id 16
return_token_ids 20
return_sampling_mask 20
return_spec_tokens_details 20
return_input_ids_in_sglext 20
return_output_ids_in_sglext 20
sampling_logprobs_mode 23
return_flat_raw_output_top_logprobs 23
thinking 23
watermark 23
rid 6
logprobs 6
stop_token_ids 6
"""


@pytest.mark.parametrize("name", PROFILES)
def test_chat_knows_the_fields_of_its_release_and_no_later_ones(name: str) -> None:
    fields = profiles.load(name).chat.fields
    for line in CHAT_FIELDS.strip().splitlines():
        field, first, *fork = line.split()
        has = int(first) <= release_number(name) or (bool(fork) and name.startswith("miles-rl"))
        assert (field in fields) is has, field


BEHAVIOUR: dict[str, tuple[Callable[[profiles.Profile], Any], dict[int, Any], Any]] = {
    "empty content": (lambda p: p.chat.empty_content, {6: "null", 13: ""}, ""),
    "no tool calls": (lambda p: p.chat.no_tool_calls, {6: "null", 23: "omitted"}, "null"),
    "tool call index": (lambda p: p.chat.tool_call_index, {6: "minus_one", 10: "tool", 23: "position"}, "tool"),
    "unparsed block": (lambda p: p.chat.unparsed_tool_block, {6: "kept", 16: "dropped"}, "kept"),
    "experts twice": (lambda p: p.chat.experts_with_meta_info, {6: True, 20: False}, True),
    "queue abort": (lambda p: p.chat.aborted_in_queue, {6: "crashes", 10: "empty"}, "empty"),
    "nulls": (lambda p: p.chat.stream.nulls, {6: "all", 11: "reasoning"}, "all"),
    "early error": (lambda p: p.chat.stream.early_error, {6: "sse", 10: "json"}, "json"),
    "stream abort": (lambda p: p.chat.stream.aborted, {6: "finish", 10: "cut", 11: "finish"}, "cut"),
    "stream queue abort": (
        lambda p: p.chat.stream.aborted_in_queue,
        {6: "nothing", 10: "error", 11: "finish"},
        "error",
    ),
    "stream 503": (lambda p: p.chat.stream.aborted_with_status, {6: "finish", 10: "error", 16: "finish"}, "error"),
    "stream sglext": (
        lambda p: p.chat.stream.sglext[:2],
        {6: (), 10: ("routed_experts",), 13: ("routed_experts", "cached_tokens_details")},
        ("routed_experts",),
    ),
    "generate body": (lambda p: "prompt_token_ids" in p.generate.body, {6: False, 13: True}, True),
    "incremental": (
        lambda p: p.generate.incremental,
        {6: ("output_ids",), 10: ("text", "output_ids"), 11: ("text", "output_ids", "logprobs")},
        ("text", "output_ids"),
    ),
    "generate stream error": (lambda p: p.generate.stream_error, {6: "message", 13: "described"}, "message"),
    "unknown parameter": (lambda p: p.generate.unknown_sampling, {6: "crashes", 23: "named"}, "crashes"),
    "temperature": (
        lambda p: p.sampling.temperature.removeprefix("temperature must be "),
        {6: "non-negative", 16: "a non-negative finite number"},
        "non-negative",
    ),
    "nothing cached": (lambda p: p.usage.nothing_cached, {6: "null", 23: "zero"}, "null"),
    "usage": (lambda p: p.usage.keys[-1], {6: "reasoning_tokens", 23: "completion_tokens_details"}, "reasoning_tokens"),
    "weight versions": (lambda p: p.weight_versions, {6: False, 20: True}, False),
    "hidden states": (
        lambda p: "--return-hidden-states-mode" in p.hidden_states_refusal,
        {6: False, 20: True},
        False,
    ),
    "stop string first": (lambda p: p.finish.stop_string_first, {6: False, 16: True}, False),
    "text ends behind a kept stop string": (lambda p: p.finish.behind_stop_string, {6: False, 16: True}, False),
    "length first": (lambda p: p.finish.length_first, {6: True, 20: False}, True),
    "may fill the context": (lambda p: p.may_fill_context, {6: False, 11: True}, False),
}
"""What differs: how to look it up, its value from each release on, and the fork's."""


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("what", BEHAVIOUR)
def test_each_release_behaves_as_it_was_seen_to(name: str, what: str) -> None:
    look, since, fork = BEHAVIOUR[what]
    expected = fork
    if not name.startswith("miles-rl"):
        expected = since[max(first for first in since if first <= release_number(name))]
    assert look(profiles.load(name)) == expected


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_says_where_its_facts_come_from(name: str) -> None:
    profile = profiles.load(name)
    assert "wheel" in profile.source
    assert profile.sglang == ("0.5.10" if name.startswith("miles-rl") else name.removeprefix("sglang-"))


@pytest.mark.parametrize("name", ["miles-rl-0.0.2", "sglang-0.5.13", "sglang-0.5.16", "sglang-0.5.20", "sglang-0.5.23"])
def test_an_engine_sends_exactly_those_keys_with_those_types(
    name: str, make_engine: Callable[..., Engine], ask: Callable[..., dict[str, Any]]
) -> None:
    engine = make_engine(profile=name, speculative={}, experts={}, metrics=True)
    kinds = {"str": str, "int": int, "float": float, "list": list, "object": dict}
    asked = {"return_routed_experts": True, "top_logprobs": 2}
    first = ask(engine, **asked)
    more = ask(engine, **asked)  # asked before: cached_tokens_details is an object
    holds = WHOLE | {"logprobs", "top_logprobs", "speculative", "routed_experts", "metrics", "decoded"}
    declared = {entry.key: entry.type for entry in engine.profile.meta_info}
    for answer in (first, more):
        meta = answer["choices"][0]["meta_info"]
        assert list(meta) == expected_keys(name, holds)
        for key, value in meta.items():
            kind = declared[key]
            assert type(value) is kinds[kind.rstrip("?")] or (kind.endswith("?") and value is None), key


def test_a_broken_profile_is_refused_by_place() -> None:
    with pytest.raises(DocumentError, match=r"wire: meta_info\[0\]\.type"):
        read(profiles.Profile, {"meta_info": [{"key": "id", "type": "text"}]}, name="wire")
