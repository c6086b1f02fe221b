"""JSON Schemas of the engine's answers under each release's profile, made from the profiles' data."""

from functools import lru_cache
from typing import Any

from miles_sim.engine import profiles
from miles_sim.engine.profiles import Profile

CHAT, GENERATE = "/v1/chat/completions", "/generate"
PATHS = (CHAT, GENERATE)

_TYPES = {"str": "string", "int": "integer", "float": "number", "list": "array", "object": "object"}
_OPEN: dict[str, Any] = {}
_ABSENT_UNLESS_ASKED = frozenset(
    {"sglext", "prompt_token_ids", "response_token_ids", "meta_info", "hidden_states", "tool_calls"}
)


def meta_info(path: str, response: dict[str, Any]) -> dict[str, Any] | None:
    """The `meta_info` of an answer; None where none was asked for."""
    holder = response if path == GENERATE else (response.get("choices") or [{}])[0]
    found = holder.get("meta_info")
    return found if isinstance(found, dict) else None


@lru_cache(maxsize=64)
def counted_keys(profile: str) -> dict[str, str]:
    """Key of `meta_info` to the name of the value that the engine knows it as."""
    return {entry.key: entry.value or entry.key for entry in profiles.load(profile).meta_info}


@lru_cache(maxsize=64)
def response_schema(profile: str, path: str) -> dict[str, Any]:
    """The schema of a whole answer (no stream) of one generation on `path`."""
    wire = profiles.load(profile)
    return _chat(wire) if path == CHAT else _generate(wire)


def profile_schema(profile: str) -> dict[str, Any]:
    """One document a profile: an answer of either endpoint."""
    made = {path: response_schema(profile, path) for path in PATHS}
    return {
        "title": f"Answers of {profiles.load(profile).release}",
        "description": "A whole answer of one generation, by endpoint.",
        "type": "object",
        "properties": made,
        "additionalProperties": False,
    }


def _meta(wire: Profile) -> dict[str, Any]:
    """Required is what both an ordinary answer and one from the queue have."""
    always = {entry.key for entry in wire.meta_info if not entry.when or set(entry.when) <= {"finished", "sent"}}
    return {
        "type": "object",
        "properties": {entry.key: _type(entry.type) for entry in wire.meta_info},
        "required": sorted(always & set(wire.queue_abort)),
        "additionalProperties": False,
    }


def _type(name: str) -> dict[str, Any]:
    kind = _TYPES[name.rstrip("?")]
    return {"type": [kind, "null"] if name.endswith("?") else kind}


def _closed(properties: dict[str, Any], optional: frozenset[str] = _ABSENT_UNLESS_ASKED) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def _generate(wire: Profile) -> dict[str, Any]:
    known = {"text": {"type": "string"}, "output_ids": _ids(), "meta_info": _meta(wire)}
    optional = _ABSENT_UNLESS_ASKED - {"meta_info"}
    return _closed({name: known.get(name, _OPEN) for name in wire.generate.body}, optional)


def _chat(wire: Profile) -> dict[str, Any]:
    shape = wire.chat
    message = {
        "role": {"const": "assistant"},
        "content": {"type": ["string", "null"]},
        "reasoning_content": {"type": ["string", "null"]},
        "tool_calls": {"type": ["array", "null"]},
    }
    choice = {
        "index": {"type": "integer"},
        "message": _closed({name: message.get(name, _OPEN) for name in shape.message}),
        "logprobs": {"type": ["object", "null"]},
        "finish_reason": {"enum": ["stop", "length", "tool_calls", "content_filter", "function_call", "abort", None]},
        "meta_info": _meta(wire),
    }
    known = {
        "id": {"type": "string"},
        "object": {"const": "chat.completion"},
        "created": {"type": "integer"},
        "model": {"type": "string"},
        "choices": {"type": "array", "items": _closed({name: choice.get(name, _OPEN) for name in shape.choice})},
        "usage": _closed(dict.fromkeys(wire.usage.keys, _OPEN)),
        "metadata": {"type": ["object", "null"]},
        "sglext": _closed(dict.fromkeys(shape.sglext, _OPEN), frozenset(shape.sglext)),
    }
    return _closed({name: known.get(name, _OPEN) for name in shape.response})


def _ids() -> dict[str, Any]:
    return {"type": "array", "items": {"type": "integer"}}
