"""Tokenizer, parsers and knobs over HTTP, as each release has them."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from miles_sim.engine.engine import Engine

Make = Callable[..., Engine]
HI = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


def get(engine: Engine, path: str, method: str = "GET", **more: Any) -> httpx.Response:
    async def asked() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=engine.app), base_url="http://engine") as client:
            return await client.request(method, path, **more)

    return asyncio.run(asked())


@pytest.mark.parametrize("path", ["/tokenize", "/v1/tokenize"])
def test_a_prompt_is_tokenized(make_engine: Make, post: Any, path: str) -> None:
    engine = make_engine()
    assert post(engine, path, prompt="héy").json == {"tokens": [*"héy".encode()], "count": 4, "max_model_len": 1 << 20}
    assert post(engine, path, prompt=["a", "bc"]).json["count"] == [1, 2]
    assert post(engine, path, prompt=[]).json["tokens"] == []


def test_messages_are_tokenized_as_a_chat_renders_them(make_engine: Make, post: Any) -> None:
    engine = make_engine()
    asked = {"messages": HI, "tools": TOOLS, "chat_template_kwargs": {"x": 1}}
    tokens = post(engine, "/tokenize", **asked).json["tokens"]
    post(engine, "/v1/chat/completions", **asked)
    assert tuple(tokens) == engine.generations[0].prompt_ids


@pytest.mark.parametrize(
    ("profile", "asked", "status", "text"),
    [
        ("sglang-0.5.11", {"messages": HI}, 400, "1 validation error"),
        ("sglang-0.5.16", {}, 400, "Exactly one of 'prompt' or 'messages' must be provided."),
        ("sglang-0.5.16", {"prompt": "a", "messages": HI}, 400, "Exactly one of 'prompt' or 'messages'"),
        ("sglang-0.5.16", {"messages": []}, 400, "Messages cannot be empty."),
        ("sglang-0.5.23", {"messages": HI, "add_generation_prompt": False}, 501, "add_generation_prompt: False"),
    ],
)
def test_what_cannot_be_tokenized_is_refused(
    make_engine: Make, post: Any, profile: str, asked: dict[str, Any], status: int, text: str
) -> None:
    answer = post(make_engine(profile=profile), "/tokenize", **asked)
    assert answer.status == status
    assert text in answer.json["message"]


@pytest.mark.parametrize("path", ["/detokenize", "/v1/detokenize"])
def test_ids_become_text_again(make_engine: Make, post: Any, path: str) -> None:
    engine = make_engine()
    stop = engine.tokenizer.text_stop_id
    assert post(engine, path, tokens=[104, 105, stop]).json == {"text": "hi"}
    assert post(engine, path, tokens=[[104], [stop]], skip_special_tokens=False).json == {"text": ["h", "<|im_end|>"]}
    assert post(engine, path, tokens=[104, 1 << 20]).json == {"text": "h"}
    assert post(engine, path, tokens=[]).json == {"text": ""}
    assert post(engine, path, tokens=[-1]).status == 500


def test_calls_are_parsed_from_a_text(make_engine: Make, post: Any) -> None:
    text = 'So: <tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>'
    found = post(make_engine(), "/parse_function_call", text=text, tools=TOOLS, tool_call_parser="qwen25").json
    assert found["calls"] == [{"tool_index": 0, "name": "look", "parameters": '{"a": 1}'}]
    assert found["normal_text"] == "So:"
    none = post(make_engine(), "/parse_function_call", text=text, tool_call_parser="qwen25").json
    assert none == {"normal_text": text, "calls": []}


def test_thoughts_are_separated_from_a_text(make_engine: Make, post: Any) -> None:
    asked = {"text": "<think>hm</think>yes", "reasoning_parser": "qwen3"}
    assert post(make_engine(), "/separate_reasoning", **asked).json == {"reasoning_text": "hm", "text": "yes"}
    blocks = post(make_engine(), "/separate_reasoning", return_blocks=True, **asked)
    assert (blocks.status, blocks.json["param"]) == (501, "return_blocks")
    old = make_engine(profile="sglang-0.5.10")
    assert post(old, "/separate_reasoning", return_blocks=True, **asked).status == 200


@pytest.mark.parametrize(
    ("path", "asked", "status", "param"),
    [
        ("/parse_function_call", {"text": "a", "tool_call_parser": "llama3"}, 501, "tool_call_parser"),
        ("/separate_reasoning", {"text": "a", "reasoning_parser": "gpt-oss"}, 501, "reasoning_parser"),
        ("/slow_down", {"forward_sleep_time": 2.0}, 501, "forward_sleep_time"),
        ("/separate_reasoning", {"text": "a"}, 400, None),
    ],
)
def test_what_is_not_known_here_is_refused_by_name(
    make_engine: Make, post: Any, path: str, asked: dict[str, Any], status: int, param: str | None
) -> None:
    answer = post(make_engine(), path, **asked)
    assert (answer.status, answer.json["param"]) == (status, param)


def test_a_parser_that_nobody_named_is_what_the_release_falls_over(make_engine: Make, post: Any) -> None:
    assert post(make_engine(), "/parse_function_call", text="a").status == 500


def test_knobs_without_an_effect_are_acknowledged(make_engine: Make, post: Any) -> None:
    engine = make_engine()
    assert get(engine, "/freeze_gc").text == "Garbage collection frozen.\n"
    assert (post(engine, "/configure_logging", log_requests=True).status, post(engine, "/slow_down").status) == (
        200,
        400,
    )
    assert post(engine, "/slow_down", forward_sleep_time=None).text == "null"
    assert get(engine, "/set_trace_level?level=2").text == "success"
    for query in ("", "?level=x", "?level=-1"):
        assert get(engine, f"/set_trace_level{query}").status_code == 400


def test_what_a_plain_server_has_not_is_told_as_it_tells_it(make_engine: Make) -> None:
    engine, fork = make_engine(), make_engine(profile="miles-rl-0.0.2")
    for method in ("GET", "DELETE", "PUT"):
        answer = get(engine, "/hicache/storage-backend", method)
        assert (answer.status_code, "requires admin API key" in answer.json()["error"]) == (400, True)
    for path in ("/remote_instance_transfer_engine_info", "/get_remote_instance_transfer_engine_info"):
        assert get(engine, path).json()["error"]["message"] == "Missing or invalid rank parameter"
        told = get(engine, f"{path}?rank=1").json()["error"]["message"]
        assert told == "Failed to get transfer engine info for rank 1"
    assert get(fork, "/parallelism_config").json()["error"]["message"] == "Missing or invalid rank parameter"
    failed = get(fork, "/parallelism_config?rank=0")
    assert (failed.status_code, failed.content) == (400, b"")


def test_invocations_are_chats(make_engine: Make, post: Any) -> None:
    engine = make_engine()
    answers = [post(engine, path, messages=HI, seed=1).json for path in ("/invocations", "/v1/chat/completions")]
    assert answers[0]["object"] == answers[1]["object"] == "chat.completion"
    assert [generation.endpoint for generation in engine.generations] == ["chat", "chat"]


def test_a_parameter_is_other_after_an_update(make_engine: Make, post: Any) -> None:
    def named(engine: Engine) -> Any:
        return post(engine, "/get_weights_by_name", name="model.norm.weight", truncate_size=3).json

    engine = make_engine()
    before = named(engine)
    assert before == named(make_engine()) != named(make_engine(seed=1))
    post(engine, "/update_weights_from_disk", model_path="x", weight_version="2")
    assert len(before) == 3
    assert named(engine) != before


def test_spoiled_tensors_are_whole_after_an_update(make_engine: Make, post: Any) -> None:
    engine = make_engine()

    def check(action: str) -> tuple[int, str]:
        answer = post(engine, "/weights_checker", action=action)
        return answer.status, answer.json["message"]

    assert check("compare") == (400, "")
    assert [check(action)[0] for action in ("snapshot", "compare", "reset_tensors", "compare")] == [200, 200, 200, 400]
    assert check("compare")[1].startswith("check tensor equality failed:")
    post(engine, "/update_weights_from_disk", model_path="x")
    assert check("compare") == (200, "Success.")
    assert check("sing") == (400, "Unsupported action='sing'")


def test_weights_are_summed_up_where_the_release_does_so(make_engine: Make, post: Any) -> None:
    old = post(make_engine(profile="sglang-0.5.11"), "/weights_checker", action="checksum")
    assert (old.status, old.json["message"]) == (400, "Unsupported action='checksum'")
    engine = make_engine(profile="sglang-0.5.23")
    first = get(engine, "/weights_checker").json()
    assert first == post(engine, "/weights_checker", action="checksum").json
    ((place,),) = [[rank["parallelism_info"] for rank in first["ranks"]]]
    assert (place["role"], place["tp_rank"], place["tp_size"], place["size"]) == ("target", 0, 1, 1)
    assert "role" not in get(make_engine(), "/weights_checker").json()["ranks"][0]["parallelism_info"]
    post(engine, "/update_weights_from_disk", model_path="x", weight_version="2")
    assert get(engine, "/weights_checker").json()["per_engine_checksum"] != first["per_engine_checksum"]


@pytest.mark.parametrize(
    ("profile", "field", "value"),
    [("sglang-0.5.16", "serialized_tensors", "x"), ("sglang-0.5.20", "serialized_named_tensors", ["x"])],
)
def test_the_tensors_of_an_adapter_come_in_the_releases_field(
    make_engine: Make, post: Any, profile: str, field: str, value: Any
) -> None:
    engine = make_engine(profile=profile, lora={})
    path, asked = "/load_lora_adapter_from_tensors", {"lora_name": "a", "config_dict": {}}
    assert post(engine, path, **asked).status == 400
    assert post(engine, path, **asked, **{field: value}).status == 200
    assert engine.adapters.loaded == {"a": "__tensor__"}
