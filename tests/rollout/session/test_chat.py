import json
from typing import Any

import pytest

from miles_sim.rollout.errors import MessageValidationError
from miles_sim.rollout.session.chat import read_chat
from miles_sim.rollout.settings import RolloutSettings

USER = {"role": "user", "content": "hi"}


def read(**fields: Any) -> Any:
    return read_chat(json.dumps({"messages": [USER], **fields}).encode(), RolloutSettings())


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "body: not JSON"),
        (b"{", "body: not JSON"),
        (b'{"temperature": NaN}', "body: not JSON"),
        (b"[]", "body: empty list, not an object"),
        (b'"x"', "body: str, not an object"),
        (b"{}", "messages: missing or null"),
        (b'{"messages": null}', "messages: missing or null"),
        (b'{"messages": []}', "messages: empty list"),
        (b'{"messages": {}}', "messages: empty dict"),
        (b'{"messages": ["x"]}', r"messages\[0\]: str, not an object"),
        (b'{"messages": [{"content": "x"}]}', r"messages\[0\].role: missing"),
        (b'{"messages": [{"role": 3}]}', r"messages\[0\].role: int, not a string"),
        (b'{"messages": [{"role": "user", "content": 3}]}', r"messages\[0\].content: int"),
        (b'{"messages": [{"role": "assistant", "tool_calls": {"a": 1}}]}', r"messages\[0\].tool_calls: dict"),
    ],
)
def test_a_body_that_is_no_chat_is_refused_by_the_field_at_fault(body: bytes, named: str) -> None:
    with pytest.raises(MessageValidationError, match=named):
        read_chat(body, RolloutSettings())


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"chat_template_kwargs": []}, "chat_template_kwargs: empty list, not an object"),
        ({"chat_template_kwargs": "x"}, "chat_template_kwargs: str"),
        ({"tools": {"a": 1}}, "tools: dict"),
        ({"tools": ["f"]}, "tools: list"),
        ({"n": 2}, "n: 2; a session records one choice"),
        ({"n": 0}, "n: 0"),
        ({"n": True}, "n: True"),
    ],
)
def test_a_field_that_cannot_be_served_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(MessageValidationError, match=named):
        read(**fields)


def test_what_recording_needs_is_set_whatever_the_client_says() -> None:
    asked = read(logprobs=False, return_meta_info=False, no_stop_trim=True, n=None, temperature=0.5)
    body = asked.engine_body([USER], [1, 2], {})
    assert body == {
        "messages": [USER],
        "input_ids": [1, 2],
        "logprobs": True,
        "return_meta_info": True,
        "no_stop_trim": False,
        "n": 1,
        "temperature": 0.5,
    }


def test_the_engine_is_never_asked_to_stream_or_to_start_logprobs_or_replay_rows_elsewhere() -> None:
    asked = read(
        stream=True,
        stream_options={"include_usage": True},
        logprob_start_len=0,
        routed_experts_start_len=3,
        input_ids=[9],
    )
    assert asked.stream
    body = asked.engine_body([USER], [1], {})
    assert body["input_ids"] == [1]
    assert not {"stream", "stream_options", "logprob_start_len", "routed_experts_start_len"} & set(body)


def test_replay_data_is_asked_for_by_settings_alone() -> None:
    body = json.dumps({"messages": [USER]}).encode()
    plain = read_chat(body, RolloutSettings()).fields
    assert not {"return_routed_experts", "return_indexer_topk"} & set(plain)
    replaying = read_chat(body, RolloutSettings(routing_replay=True, indexer_replay=True)).fields
    assert replaying["return_routed_experts"] is replaying["return_indexer_topk"] is True


def test_template_options_are_for_the_template_and_the_engine_both() -> None:
    asked = read(chat_template_kwargs={"enable_thinking": False})
    assert asked.template_options == asked.fields["chat_template_kwargs"] == {"enable_thinking": False}
    assert "chat_template_kwargs" not in read(chat_template_kwargs={}).fields
