"""Qwen 2.5 and 3: a JSON object between `<tool_call>` tags (SGLang function_call/qwen25_detector.py)."""

import json
import re
from collections.abc import Sequence
from json.decoder import JSONDecoder
from typing import Any

from miles_sim.engine.formats.call import (
    CallPiece,
    Delta,
    Found,
    Sent,
    Tools,
    complete_json,
    dumps,
    known_calls,
    tool_numbers,
)
from miles_sim.engine.formats.dialect import Dialect
from miles_sim.reply import ToolCall

_OPEN, _CLOSE = "<tool_call>\n", "\n</tool_call>"
_BLOCK = re.compile(re.escape(_OPEN) + "(.*?)" + re.escape(_CLOSE), re.DOTALL)
_TAG = _CLOSE.lstrip()


class Qwen25:
    marker = _OPEN
    tagged = True

    def spell(self, calls: Sequence[ToolCall], *, after_text: bool, calls_before: int) -> str:
        blocks = [
            f'{_OPEN}{{"name": {dumps(call.name)}, "arguments": {dumps(call.arguments)}}}{_CLOSE}' for call in calls
        ]
        return ("\n" if after_text else "") + "\n".join(blocks)

    def parse(self, text: str, tools: Tools, dialect: Dialect) -> Found:
        calls = []
        for block in _BLOCK.findall(text):
            try:
                action = json.loads(block.strip())
            except json.JSONDecodeError:
                continue
            calls += known_calls(action, tools, dialect)
        return Found(text[: text.index(_OPEN)].strip(), tuple(calls))

    def stream(self, tools: Tools, dialect: Dialect) -> "QwenStream":
        return QwenStream(tools, dialect)


class QwenStream:
    """Lets out a call's name once it is whole, then its arguments as far as two steps agree on them."""

    def __init__(self, tools: Tools, dialect: Dialect) -> None:
        self._known = tool_numbers(tools)
        self._dialect = dialect
        self._buffer = ""
        self._held = ""
        self._calls = Sent()

    def push(self, text: str) -> Delta:
        self._buffer += text
        opened = _OPEN in self._buffer or (self._calls.number > 0 and self._buffer.startswith("\n"))
        return self._call() if opened else Delta(self._content())

    def rest(self) -> CallPiece | None:
        return self._calls.rest()

    def _content(self) -> str:
        """The buffer as content, less end tags; what may be the beginning of a tag is held back."""
        if _partial(self._buffer, _OPEN):
            return ""
        self._held += self._buffer.replace(_CLOSE, "")
        self._buffer = ""
        if _TAG in self._held:
            text, self._held = self._held.replace(_TAG, ""), ""
            return text
        cut = len(self._held) - _partial(self._held, _TAG)
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def _call(self) -> Delta:
        at = self._located()
        if at is None:
            return Delta()
        start, value, end = at
        if not isinstance(value, dict):
            return Delta()
        if "name" in value and value["name"] not in self._known:
            return self._unknown()
        if "parameters" in value:
            value["arguments"] = value["parameters"]
        if not value:
            return Delta()
        if not self._calls.named:
            return Delta(calls=(self._calls.name(value["name"]),)) if value.get("name") else Delta()
        return self._arguments(value, start, end)

    def _located(self) -> tuple[int, Any, int] | None:
        """Where the call under way begins in the buffer, what can be read of it, and how far that goes."""
        separated = self._calls.number > 0 and self._buffer.startswith("\n")
        start = 1 if separated else self._buffer.find(_OPEN) + len(_OPEN)
        found = read_json(self._buffer[start:], whole_strings=not self._calls.named)
        if found is None and separated and _OPEN in self._buffer:
            start = self._buffer.find(_OPEN) + len(_OPEN)
            found = read_json(self._buffer[start:], whole_strings=not self._calls.named)
        return None if found is None else (start, *found)

    def _unknown(self) -> Delta:
        self._buffer = ""
        self._calls.number, self._calls.named = -1, False
        if self._calls.sent:
            self._calls.sent.pop()
        return Delta()

    def _arguments(self, value: dict[str, Any], start: int, end: int) -> Delta:
        arguments = value.get("arguments")
        if arguments is None or (not arguments and not self._dialect.empty_arguments_end):
            return Delta()
        calls = self._calls
        done = complete_json(self._buffer[start : start + end])
        spelled, sent = self._spelled(arguments), calls.sent[calls.number]
        before = calls.read[calls.number] if calls.number < len(calls.read) else None
        more: str | None = None
        if done:
            more = spelled[len(sent) :]
            self._buffer = self._buffer[start + end :]
        elif before and self._spelled(before) != spelled:
            more = _shared(self._spelled(before), spelled)[len(sent) :]
        calls.took(arguments)
        piece = () if more is None else (calls.arguments(more),)
        if done:
            calls.next()
        return Delta(calls=piece)

    def _spelled(self, arguments: Any) -> str:
        return json.dumps(arguments, ensure_ascii=self._dialect.streams_ascii)


def read_json(text: str, *, whole_strings: bool) -> tuple[Any, int] | None:
    """JSON at the beginning of `text`, as much of it as is there, and how long it is; None where it is none."""
    from partial_json_parser import loads
    from partial_json_parser.core.exceptions import MalformedJSON, PartialJSON
    from partial_json_parser.core.options import Allow

    if not text:
        return None
    try:
        return loads(text, Allow.ALL & ~Allow.STR if whole_strings else Allow.ALL), len(text)
    except (json.JSONDecodeError, IndexError) as error:
        if "Extra data" not in str(error) and "pop from empty list" not in str(error):
            return None
    except (MalformedJSON, PartialJSON, AssertionError):
        return None
    begin = len(text) - len(text.lstrip(" \t\n\r"))
    try:
        return JSONDecoder().raw_decode(text, begin)
    except json.JSONDecodeError:
        return None


def _partial(text: str, tag: str) -> int:
    """Length of the shortest end of `text` that `tag` begins with."""
    return next((n for n in range(1, min(len(text) + 1, len(tag))) if tag.startswith(text[-n:])), 0)


def _shared(left: str, right: str) -> str:
    same = next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    return left[:same]
