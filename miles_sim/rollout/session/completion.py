"""The engine's reply to a chat request, checked: either all of it can be trained on, or it is refused by name."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from miles_sim.rollout.errors import UpstreamResponseError
from miles_sim.rollout.plain import not_json

FINISH_REASONS = ("stop", "tool_calls", "length", "abort")
LARGEST_LOGPROB = 1e-6
"""Rounding may leave a sure token a hair above 0; anything larger is no log probability."""


@dataclass(frozen=True)
class Completion:
    """One generation as the engine told it."""

    response: dict[str, Any]
    """The whole reply."""
    response_id: str
    message: Mapping[str, Any]
    """The assistant message; its content is always a string."""
    finish_reason: str
    meta_info: Mapping[str, Any]
    output_ids: Sequence[int]
    log_probs: Sequence[float]


def read_completion(body: bytes, *, prompt_tokens: int) -> Completion:
    """The generation in `body`, asked with `prompt_tokens` ids; else `UpstreamResponseError`."""
    found, strict = _json(body)
    response = _object(found, "body")
    choices = response.get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        raise UpstreamResponseError(f"choices: {_short(choices)} is not a list of exactly one")
    choice = _object(choices[0], "choices[0]")
    response_id = response.get("id")
    if not isinstance(response_id, str) or not response_id:
        raise UpstreamResponseError(f"id: {_short(response_id)} is not a response id")
    if choice.get("meta_info") is None:
        raise UpstreamResponseError(
            "choices[0].meta_info: missing or null; the engine or a router on the way dropped return_meta_info"
        )
    meta_info = _object(choice["meta_info"], "choices[0].meta_info")
    _check_prompt(meta_info, response.get("usage"), prompt_tokens)
    output_ids, log_probs = _sampled(meta_info)
    message, finish_reason = _message(choice.get("message")), _finish_reason(choice.get("finish_reason"))
    if not strict:
        raise UpstreamResponseError(f"body: not JSON: {not_json(found, 'body') or 'it cannot be sent on'}")
    return Completion(
        response=response,
        response_id=response_id,
        message=message,
        finish_reason=finish_reason,
        meta_info=meta_info,
        output_ids=output_ids,
        log_probs=log_probs,
    )


def _json(body: bytes) -> tuple[Any, bool]:
    """What `body` spells, and whether it is JSON to the letter."""
    try:
        return orjson.loads(body), True
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(body), False  # lets NaN and Infinity through, so that they are refused by their field's name
    except (ValueError, RecursionError) as error:
        raise UpstreamResponseError(f"body: not JSON: {error}") from error


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UpstreamResponseError(f"{name}: {_short(value)} is not an object")
    return value


def _check_prompt(meta_info: Mapping[str, Any], usage: Any, expected: int) -> None:
    """An engine, or a router before it, that dropped `input_ids` has generated from a prompt of its own."""
    found = meta_info.get("prompt_tokens")
    name = "meta_info.prompt_tokens"
    if found is None and isinstance(usage, dict):
        found, name = usage.get("prompt_tokens"), "usage.prompt_tokens"
    if found is not None and found != expected:
        raise UpstreamResponseError(
            f"{name}: {_short(found)}, but input_ids held {expected}; the engine or a router on the way dropped them"
        )


def _sampled(meta_info: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    entries = meta_info.get("output_token_logprobs")
    if not isinstance(entries, list):
        raise UpstreamResponseError(f"meta_info.output_token_logprobs: {_short(entries)} is not a list")
    for i, entry in enumerate(entries):
        if not isinstance(entry, list) or len(entry) < 2:
            raise UpstreamResponseError(
                f"meta_info.output_token_logprobs[{i}]: {_short(entry)} is not [logprob, id, …]"
            )
        if not _is_logprob(entry[0]):
            raise UpstreamResponseError(
                f"meta_info.output_token_logprobs[{i}][0]: {_short(entry[0])} is not a finite number up to 0"
            )
        if type(entry[1]) is not int or entry[1] < 0:
            raise UpstreamResponseError(
                f"meta_info.output_token_logprobs[{i}][1]: {_short(entry[1])} is not a token id"
            )
    count = meta_info.get("completion_tokens")
    if type(count) is not int or count != len(entries):
        raise UpstreamResponseError(
            f"meta_info.completion_tokens: {_short(count)}, but output_token_logprobs has {len(entries)} entries"
        )
    return tuple(entry[1] for entry in entries), tuple(float(entry[0]) for entry in entries)


def _is_logprob(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value <= LARGEST_LOGPROB


def _message(value: Any) -> dict[str, Any]:
    message = _object(value, "choices[0].message")
    calls = message.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
        raise UpstreamResponseError(f"choices[0].message.tool_calls: {_short(calls)} is not a list of objects")
    if message.get("role", "assistant") != "assistant":
        raise UpstreamResponseError(f"choices[0].message.role: {_short(message['role'])} is not 'assistant'")
    content = message.get("content")
    # Engines up to SGLang 0.5.12 spell the empty text beside tool calls as null.
    if content is None and calls:
        content = ""
    if not isinstance(content, str):
        raise UpstreamResponseError(f"choices[0].message.content: {_short(content)} is not a string")
    return {**message, "role": "assistant", "content": content}


def _finish_reason(value: Any) -> str:
    if value not in FINISH_REASONS:
        raise UpstreamResponseError(f"choices[0].finish_reason: {_short(value)} is not one of {FINISH_REASONS}")
    return str(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
