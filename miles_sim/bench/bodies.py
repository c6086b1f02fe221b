"""Random requests for an engine: what clients send, bent and broken in the ways that clients and attackers do."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

Make = Callable[[Random], Any]

_MODES = ("abort", "retract", "in_place", "sideways")
_TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
_DEEP: Any = json.loads("[" * 60 + "]" * 60)

EVIL: tuple[Make, ...] = (
    lambda r: None,
    lambda r: r.choice((True, False)),
    lambda r: r.choice((0, -1, 1, 2, 2**31, -(2**31), 2**63, 10**30)),
    lambda r: r.choice((0.5, -0.5, 1e308, -0.0, float("nan"), float("inf"))),
    lambda r: r.choice(("", "x", "true", "7", "é\u0000🙂", "\ud800", "x" * 5_000, "<|im_end|>", "../..", "%00")),
    lambda r: r.choice(([], [None], [[]], [[[]]], [1, "a"], [{}], ["", ""], [True], _DEEP)),
    lambda r: r.choice(({}, {"a": 1}, {"": None}, {"role": "user"}, {"function": {"name": "look"}})),
    lambda r: [r.randrange(-5, 2_000) for _ in range(r.choice((1, 3, 40)))],
    lambda r: [r.choice((0, 300, 2**31, 2**70))] * r.choice((1, 2_000, 40_000)),
    lambda r: ["a", "b"] * r.randrange(3),
)
"""Values for a field of any type."""


def _ids(r: Random) -> list[int]:
    return [r.randrange(821) for _ in range(r.randrange(1, 30))]


def _text(r: Random) -> str:
    return r.choice(("hello", "go on", "what is new?", "call")) + str(r.randrange(1_000))


def _message(r: Random) -> dict[str, Any]:
    role = r.choice(("user", "user", "system", "assistant", "tool", "developer", "wizard"))
    message: dict[str, Any] = {"role": role, "content": r.choice((_text(r), None, [{"type": "text", "text": "a"}]))}
    if role == "assistant" and r.random() < 0.5:
        arguments = r.choice(("{}", "{", "[1]", {"a": 1}, None))
        message["tool_calls"] = [{"id": "1", "type": "function", "function": {"name": "look", "arguments": arguments}}]
    return message


_PATTERNS = (
    None,
    "(",
    "",
    "a+|b{2,3}",
    r"[^\W\d]{4}",
    r"(?=a)b",
    r"(a)\1",
    "a{9999999}",
    "((a{99}){99}){99}",
    r"[\ud800-\udfff]",
)
_REPEATED = {"$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 2}}, "$ref": "#/$defs/a"}
_KEYWORDS: dict[str, Make] = {
    "type": lambda r: r.choice(
        ("object", "array", "string", "integer", "number", "null", ["boolean", "null"], "thing")
    ),
    "properties": lambda r: {"a": _schema(r), "b": _schema(r)},
    "required": lambda r: r.choice((["a"], ["c", "d"], [1])),
    "items": lambda r: _schema(r),
    "minItems": lambda r: r.choice((0, 2, 10**9)),
    "anyOf": lambda r: [_schema(r), _schema(r)],
    "allOf": lambda r: [_schema(r)],
    "enum": lambda r: r.choice(([1, "a"], [])),
    "$ref": lambda r: r.choice(("#", "#/$defs/a", "x")),
    "pattern": lambda r: r.choice(_PATTERNS),
    "minLength": lambda r: r.choice((3, 10**9)),
    "minimum": lambda r: r.choice((-3, 0.5, 10**30)),
    "multipleOf": lambda r: r.choice((3, 0.1, 0)),
    "not": lambda r: {},
}


def _schema(r: Random) -> Any:
    if r.random() < 0.1:
        return r.choice((True, False, _REPEATED))
    if r.random() < 0.1:
        return r.choice(EVIL)(r)
    return {key: make(r) for key, make in _KEYWORDS.items() if r.random() < 0.12}


def _schema_text(r: Random) -> str:
    return json.dumps(_schema(r))


_SHARED: dict[str, Make] = {
    "model": lambda r: "sim",
    "rid": lambda r: r.choice(("mine", ["a", "b"], "")),
    "stream": lambda r: r.random() < 0.5,
    "lora_path": lambda r: r.choice((None, "unknown", ["unknown"])),
    "extra_key": lambda r: r.choice(("a", ["a"])),
    "cache_salt": lambda r: "salt",
    "return_hidden_states": lambda r: r.random() < 0.5,
    "return_routed_experts": lambda r: True,
    "routed_experts_start_len": lambda r: r.choice((-1, 0, 5, 10**6)),
    "custom_logit_processor": lambda r: "code",
    "session_params": lambda r: {"id": "1"},
    "priority": lambda r: 3,
    "bootstrap_room": lambda r: 1,
}
_SAMPLING: dict[str, Make] = {
    "temperature": lambda r: r.choice((0, 0.7, -1, 3)),
    "top_p": lambda r: r.choice((1, 0.9, 0, 2)),
    "top_k": lambda r: r.choice((-1, 1, 0, 5)),
    "min_p": lambda r: r.choice((0, 0.5, 2)),
    "frequency_penalty": lambda r: r.choice((0, 3)),
    "presence_penalty": lambda r: r.choice((0, -3)),
    "repetition_penalty": lambda r: r.choice((0, 1, 3)),
    "stop": lambda r: r.choice((None, "e", ["e", " "], [])),
    "stop_token_ids": lambda r: r.choice(([2], [], [10**9], [-1])),
    "stop_regex": lambda r: r.choice((None, ".*", "e$", ["^a", "[a-z]{5}"], ["a"] * 40, *_PATTERNS)),
    "no_stop_trim": lambda r: True,
    "skip_special_tokens": lambda r: False,
    "ignore_eos": lambda r: r.choice((True, False)),
    "regex": lambda r: r.choice(_PATTERNS),
    "ebnf": lambda r: r.choice((None, "root ::= x")),
    "logit_bias": lambda r: r.choice((None, {"1": 5}, {"x": 1}, {"820": -100, "300": 1e300}, {"99999": 1}, {"-1": 1})),
    "n": lambda r: r.choice((1, 2, 0, -3, 5_000, 10**9)),
}
_CHAT: dict[str, Make] = {
    **_SHARED,
    **_SAMPLING,
    "messages": lambda r: [_message(r) for _ in range(r.randrange(4))],
    "input_ids": _ids,
    "max_tokens": lambda r: r.choice((0, 1, 20, -1, 10**9)),
    "max_completion_tokens": lambda r: r.choice((0, 5, None)),
    "min_tokens": lambda r: r.choice((0, 4)),
    "seed": lambda r: r.choice((None, 7, -1, 2**64)),
    "logprobs": lambda r: True,
    "top_logprobs": lambda r: r.choice((None, 0, 3, -1, 10**6)),
    "tools": lambda r: r.choice((_TOOLS, [], None)),
    "tool_choice": lambda r: r.choice(("auto", "none", "required", {"function": {"name": "look"}})),
    "response_format": lambda r: r.choice(
        (
            None,
            {"type": r.choice(("text", "json_object", "json_schema", "structural_tag"))},
            {"type": "json_schema", "json_schema": {"name": "A", "schema": _schema(r)}},
            {"type": "json_schema", "schema": _schema(r)},
        )
    ),
    "chat_template_kwargs": lambda r: r.choice(({}, {"enable_thinking": False}, {"messages": []})),
    "reasoning_effort": lambda r: r.choice(("low", "none", 3)),
    "separate_reasoning": lambda r: r.random() < 0.5,
    "stream_options": lambda r: r.choice(({"include_usage": True}, {"continuous_usage_stats": True}, 3)),
    "return_meta_info": lambda r: r.random() < 0.5,
    "return_prompt_token_ids": lambda r: r.random() < 0.5,
    "return_token_ids": lambda r: True,
    "return_cached_tokens_details": lambda r: True,
    "return_spec_tokens_details": lambda r: True,
    "continue_final_message": lambda r: r.random() < 0.5,
    "no_such_field": lambda r: 1,
}
_PARAMS: dict[str, Make] = {
    **_SAMPLING,
    "max_new_tokens": lambda r: r.choice((0, 1, 20, -1, 10**9, None)),
    "min_new_tokens": lambda r: r.choice((0, 4, -1, 10**9)),
    "stream_interval": lambda r: r.choice((None, 0, 1, 3, -2)),
    "sampling_seed": lambda r: r.choice((None, 7)),
    "json_schema": lambda r: r.choice((None, "{}", "{", "$$ANY$$", _schema_text(r))),
    "no_such_key": lambda r: 1,
}
_GENERATE: dict[str, Make] = {
    **_SHARED,
    "text": lambda r: r.choice((_text(r), [_text(r), _text(r)], [])),
    "input_ids": lambda r: r.choice((_ids(r), [_ids(r), _ids(r)], [[]], [])),
    "input_embeds": lambda r: [[0.5]],
    "image_data": lambda r: "x.png",
    "sampling_params": lambda r: r.choice((_bent({}, _PARAMS, r), [_bent({}, _PARAMS, r) for _ in range(2)])),
    "return_logprob": lambda r: r.choice((True, [True, False])),
    "logprob_start_len": lambda r: r.choice((-1, 0, 2, -5, 10**6, [0, 1])),
    "top_logprobs_num": lambda r: r.choice((0, 2, -1, 10**6, [1, 2])),
    "token_ids_logprob": lambda r: r.choice(([1, 2], [-1], [10**9], [[1], None])),
    "return_text_in_logprobs": lambda r: True,
    "return_prompt_token_ids": lambda r: True,
    "return_indexer_topk": lambda r: True,
}
_COMPLETIONS: dict[str, Make] = {
    **_SHARED,
    **_SAMPLING,
    "min_tokens": lambda r: r.choice((0, 4)),
    "json_schema": lambda r: r.choice((None, _schema_text(r))),
    "response_format": lambda r: {"type": "json_schema", "json_schema": {"name": "A", "schema": _schema(r)}},
    "prompt": lambda r: r.choice((_text(r), [_text(r), _text(r)], _ids(r), [_ids(r)], [], "", [[]])),
    "max_tokens": lambda r: r.choice((0, 1, 20, -1, 10**9)),
    "echo": lambda r: True,
    "logprobs": lambda r: r.choice((None, 0, 1, 5, -1, 10**6)),
    "suffix": lambda r: r.choice((None, "end")),
    "best_of": lambda r: r.choice((None, 2)),
    "stream_options": lambda r: {"include_usage": True},
}
_CONTROL: dict[str, Make] = {
    "rid": lambda r: r.choice(("mine", "unknown", "")),
    "abort_all": lambda r: r.random() < 0.5,
    "mode": lambda r: r.choice(_MODES),
    "model_path": lambda r: "/model",
    "weight_version": lambda r: r.choice(("2", "", None)),
    "new_version": lambda r: r.choice(("2", "")),
    "flush_cache": lambda r: r.random() < 0.5,
    "abort_all_requests": lambda r: r.random() < 0.5,
    "names": lambda r: ["a"],
    "dtypes": lambda r: ["bfloat16"],
    "shapes": lambda r: [[1]],
    "serialized_named_tensors": lambda r: ["AA=="],
    "lora_name": lambda r: r.choice(("a", "b")),
    "lora_path": lambda r: "/a",
    "group_name": lambda r: "g",
    "master_address": lambda r: "127.0.0.1",
    "master_port": lambda r: 1,
    "rank_offset": lambda r: 1,
    "world_size": lambda r: 2,
    "tags": lambda r: ["kv_cache"],
    "selector": lambda r: "all",
    "prompt": lambda r: r.choice((_text(r), [_text(r)])),
    "messages": lambda r: [_message(r)],
    "tokens": lambda r: r.choice((_ids(r), [_ids(r)], [-1], [10**12])),
    "text": _text,
    "tools": lambda r: _TOOLS,
    "tool_call_parser": lambda r: r.choice(("qwen25", "kimi_k2", "llama3", None)),
    "reasoning_parser": lambda r: r.choice(("qwen3", "gpt-oss")),
    "name": lambda r: "model.weight",
    "truncate_size": lambda r: r.choice((-1, 5, 10**12)),
    "action": lambda r: r.choice(("snapshot", "reset_tensors", "compare", "checksum", "x")),
    "forward_sleep_time": lambda r: r.choice((None, 1.5)),
}


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    content: bytes
    content_type: str = "application/json"

    def __str__(self) -> str:
        return f"{self.method} {self.path} ({self.content_type}) {self.content[:2_000]!r}"


_GENERATING: tuple[tuple[str, Mapping[str, Make], Make], ...] = (
    ("/v1/chat/completions", _CHAT, lambda r: {"messages": [{"role": "user", "content": _text(r)}], "max_tokens": 20}),
    ("/generate", _GENERATE, lambda r: {"input_ids": _ids(r), "sampling_params": {"max_new_tokens": 20}}),
    ("/v1/completions", _COMPLETIONS, lambda r: {"model": "sim", "prompt": _text(r), "max_tokens": 20}),
)


def request(r: Random, routes: Mapping[str, Sequence[str]]) -> Asked:
    """The next request. `routes`: methods by path of the release; three in four requests ask for a generation."""
    if r.random() < 0.75:
        path, fields, valid = r.choice(_GENERATING)
        return Asked("POST", path, _spelled(_bent(valid(r), fields, r), r), _content_type(r))
    path = r.choice(sorted(routes)).replace("{model:path}", r.choice(("sim", "other/one")))
    method = r.choice(routes.get(path, ("GET",))) if r.random() < 0.9 else r.choice(("GET", "POST", "PUT", "DELETE"))
    query = r.choice(
        (
            "",
            "",
            "",
            "?timeout=0",
            "?timeout=x",
            "?include=all",
            "?dp_rank=9",
            "?format=prometheus",
            "?rank=0",
            "?level=1",
        )
    )
    return Asked(method, path + query, _spelled(_bent({}, _CONTROL, r), r), _content_type(r))


def _bent(document: dict[str, Any], fields: Mapping[str, Make], r: Random) -> Any:
    """The document with some of the fields, each in half of the cases with a value that it was not made for."""
    for name in r.sample(sorted(fields), r.choice((0, 1, 1, 2, 3, 5))):
        document[name] = fields[name](r) if r.random() < 0.5 else r.choice(EVIL)(r)
    if document and r.random() < 0.05:
        del document[r.choice(sorted(document))]
    return document if r.random() < 0.97 else r.choice(EVIL)(r)


def _spelled(document: Any, r: Random) -> bytes:
    """As JSON, at times cut, or with a byte that does not belong."""
    text = json.dumps(document, ensure_ascii=r.random() < 0.5).encode("utf-8", "surrogatepass")
    if r.random() < 0.97:
        return text
    at = r.randrange(len(text) + 1)
    return r.choice((text[:at], text[:at] + r.randbytes(1) + text[at:], b"", b"\xff\xfe", b"[" * 2_000))


def _content_type(r: Random) -> str:
    if r.random() < 0.97:
        return "application/json"
    return r.choice(("", "text/plain", "application/json; charset=utf-8", "application/x-www-form-urlencoded"))
