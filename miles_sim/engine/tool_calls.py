"""Tool calls in a reply's text, and what becomes of its finish reason (SGLang serving_chat.py)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from miles_sim.engine.formats import FORMATS, Dialect, ParsedCall, UnreadableCall
from miles_sim.engine.profiles import ChatWire

LATEST = Dialect()
__all__ = ["Parsed", "ParsedCall", "call_number", "parse"]


@dataclass(frozen=True)
class Parsed:
    """What becomes of a reply's text."""

    text: str
    calls: tuple[ParsedCall, ...] | None
    """None: the message has no calls; empty: a list without any."""
    reason: dict[str, Any]
    """The finish reason, with `tool_calls` in place of `stop` where calls were found."""


def parse(
    text: str,
    reason: dict[str, Any],
    tools: Sequence[dict[str, Any]],
    wire: ChatWire,
    *,
    parser: str = "qwen25",
    dialect: Dialect = LATEST,
) -> Parsed:
    """Calls and the text before them. A `length` or `abort` reason stays what it is."""
    format = FORMATS[parser]
    if format.marker not in text:
        return Parsed(text, None, reason)
    calling = {"type": "tool_calls", "matched": None} if reason["type"] == "stop" else reason
    kept = wire.unparsed_tool_block == "kept"
    try:
        found = format.parse(text, tools, dialect)
    except UnreadableCall:
        return Parsed(text, None, calling if kept else reason)
    if found.calls:
        return Parsed(found.text, found.calls, calling)
    return Parsed(text, (), calling) if kept else Parsed(found.text, None, reason)


def call_number(call: ParsedCall, position: int, wire: ChatWire) -> int:
    """The `index` that the release gives a call: its place in the reply, or the number that the parser gave it."""
    return position if wire.tool_call_index == "position" else call.tool
