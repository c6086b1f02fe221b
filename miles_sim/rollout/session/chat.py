"""A chat request as a client sends it, checked, and as the engine gets it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from miles_sim.rollout.errors import MessageValidationError
from miles_sim.rollout.settings import RolloutSettings

_NEVER_SENT = (
    "stream",
    "stream_options",
    "logprob_start_len",
    "routed_experts_start_len",
    "indexer_topk_start_len",
)
"""The engine answers whole. A start for prompt logprobs or replay rows would defeat prefix reuse or shift the rows."""


@dataclass(frozen=True)
class ChatRequest:
    """What one chat completion is asked with; all checked."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None
    template_options: Mapping[str, Any]
    stream: bool
    """The client wants server-sent events."""
    fields: Mapping[str, Any]
    """All else that the engine is to get."""

    def engine_body(
        self, messages: Sequence[Mapping[str, Any]], prompt_ids: list[int], offsets: Mapping[str, int]
    ) -> dict[str, Any]:
        """The body for the engine: `prompt_ids` decide, `messages` are the same conversation in words.

        The ids are shared, not copied: a long session holds them once a generation.
        """
        return {**self.fields, **offsets, "messages": list(messages), "input_ids": prompt_ids}


def read_chat(body: bytes, settings: RolloutSettings) -> ChatRequest:
    """The request in `body`; `MessageValidationError` names what is wrong with it."""
    fields = read_object(body)
    messages = _messages(fields.pop("messages", None))
    options = _template_options(fields, settings)
    tools = fields.get("tools")
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise MessageValidationError(f"tools: {_kind(tools)}, not a list of objects")
    if fields.get("n") not in (None, 1) or isinstance(fields.get("n"), bool):
        raise MessageValidationError(f"n: {fields['n']!r}; a session records one choice a request, so only 1")
    stream = fields.get("stream")
    if not isinstance(stream, bool | None):
        raise MessageValidationError(f"stream: {stream!r} is not true or false")
    for name in _NEVER_SENT:
        fields.pop(name, None)
    # Set whatever the client says: without these the reply cannot be recorded.
    fields |= {"n": 1, "logprobs": True, "return_meta_info": True, "no_stop_trim": False}
    if options:
        fields["chat_template_kwargs"] = options
    if settings.routing_replay:
        fields["return_routed_experts"] = True
    if settings.indexer_replay:
        fields["return_indexer_topk"] = True
    if settings.lora_path is not None:
        fields["lora_path"] = settings.lora_path
    return ChatRequest(
        messages=messages, tools=tools or None, template_options=options, stream=bool(stream), fields=fields
    )


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a request body."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MessageValidationError(f"body: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise MessageValidationError(f"body: {_kind(found)}, not an object")
    return found


def _template_options(fields: dict[str, Any], settings: RolloutSettings) -> dict[str, Any]:
    """Keywords for the template: the settings', `reasoning_effort` as SGLang hands it on, then the request's own."""
    own = fields.pop("chat_template_kwargs", None)
    if own is not None and not isinstance(own, dict):
        raise MessageValidationError(f"chat_template_kwargs: {_kind(own)}, not an object")
    effort = fields.get("reasoning_effort")
    if effort is not None and not isinstance(effort, str):
        raise MessageValidationError(f"reasoning_effort: {_kind(effort)}, not a string")
    return {**settings.template_options, **({} if effort is None else {"reasoning_effort": effort}), **(own or {})}


def _messages(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise MessageValidationError(f"messages: {_kind(value)}, not a list of one message or more")
    for i, message in enumerate(value):
        if not isinstance(message, dict):
            raise MessageValidationError(f"messages[{i}]: {_kind(message)}, not an object")
        if not isinstance(message.get("role"), str):
            raise MessageValidationError(f"messages[{i}].role: {_kind(message.get('role'))}, not a string")
        if not isinstance(message.get("content"), str | list | None):
            raise MessageValidationError(f"messages[{i}].content: {_kind(message['content'])}, not a string or parts")
        calls = message.get("tool_calls")
        if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
            raise MessageValidationError(f"messages[{i}].tool_calls: {_kind(calls)}, not a list of objects")
    return value


def _kind(value: Any) -> str:
    """A value in an error: what it is, or that it is empty or not there."""
    if value is None:
        return "missing or null"
    return f"empty {type(value).__name__}" if value in ([], {}, "") else type(value).__name__
