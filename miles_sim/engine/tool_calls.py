"""Tool calls in a reply's text, found as SGLang's `qwen25` parser finds them (function_call/qwen25_detector.py)."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from miles_sim.engine.profiles import ChatWire

_OPEN = "<tool_call>\n"
_BLOCK = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)


@dataclass(frozen=True)
class ParsedCall:
    """One valid call."""

    name: str
    arguments: str
    """JSON, spelled by Python's `json.dumps`."""


@dataclass(frozen=True)
class Parsed:
    """What becomes of a reply's text."""

    text: str
    calls: tuple[ParsedCall, ...] | None
    """None: the message has no calls; empty: a list without any."""
    reason: dict[str, Any]
    """The finish reason, with `tool_calls` in place of `stop` where calls were found."""


def parse(text: str, reason: dict[str, Any], tools: Sequence[dict[str, Any]], wire: ChatWire) -> Parsed:
    """Calls of known tools and the text before them. A `length` or `abort` reason stays what it is."""
    if _OPEN not in text:
        return Parsed(text, None, reason)
    known = {tool["function"]["name"] for tool in tools}
    calling = {"type": "tool_calls", "matched": None} if reason["type"] == "stop" else reason
    before = text[: text.index(_OPEN)].strip()
    try:
        calls = tuple(call for block in _BLOCK.findall(text) for call in _calls(block, known))
    except (AttributeError, TypeError):  # JSON, but no object: the parser gives up on the whole text
        return Parsed(text, None, calling if wire.unparsed_tool_block == "kept" else reason)
    if calls:
        return Parsed(before, calls, calling)
    if wire.unparsed_tool_block == "kept":
        return Parsed(text, (), calling)
    return Parsed(before, None, reason)


def _calls(block: str, known: set[str]) -> list[ParsedCall]:
    try:
        found = json.loads(block.strip())
    except json.JSONDecodeError:
        return []
    calls = []
    for item in found if isinstance(found, list) else [found]:
        name = item.get("name")
        if name in known:
            arguments = item.get("parameters") or item.get("arguments", {})
            calls.append(ParsedCall(name, json.dumps(arguments, ensure_ascii=False)))
    return calls


def call_index(position: int, wire: ChatWire) -> int:
    """The `index` that the release gives the call at this position."""
    return {"zero": 0, "position": position, "minus_one": -1}[wire.tool_call_index]
