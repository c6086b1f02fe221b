"""The engine's reply to a chat request, checked: either all of it can be trained on, or it is refused by name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from miles_sim.rollout.engine_reply import check_prompt, read_json, read_object, read_sampled, short
from miles_sim.rollout.errors import UpstreamResponseError
from miles_sim.rollout.plain import not_json

FINISH_REASONS = ("stop", "tool_calls", "length", "abort")


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
    found, strict = read_json(body)
    response = read_object(found, "body")
    choices = response.get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        raise UpstreamResponseError(f"choices: {short(choices)} is not a list of exactly one")
    choice = read_object(choices[0], "choices[0]")
    response_id = response.get("id")
    if not isinstance(response_id, str) or not response_id:
        raise UpstreamResponseError(f"id: {short(response_id)} is not a response id")
    if choice.get("meta_info") is None:
        raise UpstreamResponseError(
            "choices[0].meta_info: missing or null; the engine or a router on the way dropped return_meta_info"
        )
    meta_info = read_object(choice["meta_info"], "choices[0].meta_info")
    check_prompt(meta_info, response.get("usage"), prompt_tokens)
    output_ids, log_probs = read_sampled(meta_info)
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


def ids_in(body: bytes) -> Iterator[str]:
    """The id that a reply has though it was refused, if one can be read."""
    try:
        found, _ = read_json(body)
    except UpstreamResponseError:
        return
    if isinstance(found, dict) and isinstance(found.get("id"), str):
        yield found["id"]


def _message(value: Any) -> dict[str, Any]:
    message = read_object(value, "choices[0].message")
    calls = message.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
        raise UpstreamResponseError(f"choices[0].message.tool_calls: {short(calls)} is not a list of objects")
    if message.get("role", "assistant") != "assistant":
        raise UpstreamResponseError(f"choices[0].message.role: {short(message['role'])} is not 'assistant'")
    content = message.get("content")
    # Engines up to SGLang 0.5.12 spell the empty text beside tool calls as null.
    if content is None and calls:
        content = ""
    if not isinstance(content, str):
        raise UpstreamResponseError(f"choices[0].message.content: {short(content)} is not a string")
    return {**message, "role": "assistant", "content": content}


def _finish_reason(value: Any) -> str:
    if value not in FINISH_REASONS:
        raise UpstreamResponseError(f"choices[0].finish_reason: {short(value)} is not one of {FINISH_REASONS}")
    return str(value)
