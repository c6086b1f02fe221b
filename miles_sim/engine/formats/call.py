"""A tool call in a reply, and what a format does with it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from miles_sim.engine.formats.dialect import Dialect
from miles_sim.reply import ToolCall

Tools = Sequence[dict[str, Any]]
"""Tool definitions of the request, in OpenAI's form."""


class UnreadableCall(Exception):
    """The parser fails on the text, rather than pass a call over."""


@dataclass(frozen=True)
class ParsedCall:
    """One call that a parser found."""

    name: str
    arguments: str
    """JSON, spelled by Python's `json.dumps`; as it was sampled where the parser does not read it (Kimi)."""
    tool: int = 0
    """The parser's own number for it: place of its tool in the request, or (Kimi) of the call in the reply."""


@dataclass(frozen=True)
class Found:
    """`text`: what is left as content."""

    text: str
    calls: tuple[ParsedCall, ...] = ()


@dataclass(frozen=True)
class CallPiece:
    """Some of the call at `index` of a reply: its name with no arguments first, then arguments bit by bit."""

    index: int
    name: str | None
    arguments: str


@dataclass(frozen=True)
class Delta:
    """What a parser lets out at one step of a stream."""

    text: str = ""
    calls: tuple[CallPiece, ...] = ()


class CallStream(Protocol):
    """The parser of one streamed reply."""

    def push(self, text: str) -> Delta:
        """Takes what was sampled since the last step."""
        ...

    def rest(self) -> CallPiece | None:
        """At the end: arguments of the last call that it read and has not let out."""
        ...


class CallFormat(Protocol):
    """One family's tool calls."""

    @property
    def marker(self) -> str:
        """Without it in a text there is no call to look for."""
        ...

    @property
    def tagged(self) -> bool:
        """A grammar can hold a model to this format (SGLang's `supports_structural_tag`)."""
        ...

    def spell(self, calls: Sequence[ToolCall], *, after_text: bool, calls_before: int) -> str:
        """As the family's template writes them. `calls_before`: calls earlier in the conversation."""
        ...

    def parse(self, text: str, tools: Tools, dialect: Dialect) -> Found:
        """Calls in a whole text that holds `marker`; `UnreadableCall` where the parser fails as a whole."""
        ...

    def stream(self, tools: Tools, dialect: Dialect) -> CallStream: ...


def dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def tool_numbers(tools: Tools) -> dict[str, int]:
    """Tool name to its place in the request."""
    return {tool["function"]["name"]: number for number, tool in enumerate(tools) if tool["function"]["name"]}


def known_calls(action: Any, tools: Tools, dialect: Dialect) -> list[ParsedCall]:
    """Calls in parsed JSON, those of unknown tools passed over (base_format_detector.py `parse_base_json`)."""
    numbers = tool_numbers(tools)
    calls = []
    for item in action if isinstance(action, list) else [action]:
        if not isinstance(item, dict):
            raise UnreadableCall(f"{type(item).__name__} is no call")
        name = item.get("name")
        if isinstance(name, list | dict):
            raise UnreadableCall(f"name: {type(name).__name__} is no name")
        if name and name in numbers:
            arguments = item.get("parameters") or item.get("arguments", {})
            calls.append(ParsedCall(name, dumps(arguments), numbers[name] if dialect.numbers_tools else -1))
    return calls


def complete_json(text: str) -> bool:
    import orjson

    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


class Sent:
    """What a stream has let out of each call, and what it has read of its arguments."""

    def __init__(self) -> None:
        self.number = -1
        """The call under way; -1 before the first."""
        self.named = False
        self.sent: list[str] = []
        self.read: list[Any] = []

    def name(self, name: str) -> CallPiece:
        self.number = max(self.number, 0)
        while len(self.sent) <= self.number:
            self.sent.append("")
        self.named = True
        return CallPiece(self.number, name, "")

    def took(self, arguments: Any) -> None:
        """The arguments of the call under way, as far as they are read."""
        while len(self.read) <= self.number:
            self.read.append({})
        self.read[self.number] = arguments

    def arguments(self, text: str) -> CallPiece:
        self.sent[self.number] += text
        return CallPiece(self.number, None, text)

    def next(self) -> None:
        self.number += 1
        self.named = False

    def rest(self) -> CallPiece | None:
        """What was read of the last call and not sent (serving_chat.py `_check_for_unstreamed_tool_args`)."""
        last = len(self.read) - 1
        if not 0 <= last < len(self.sent):
            return None
        wanted, sent = dumps(self.read[last]), self.sent[last]
        missing = wanted.replace(sent, "", 1) if sent in wanted else ""
        return CallPiece(last, None, missing) if missing else None
