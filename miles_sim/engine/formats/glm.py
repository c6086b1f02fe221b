"""GLM 4.5 and 4.6: a name, then keys and values between tags (SGLang function_call/glm4_moe_detector.py)."""

import ast
import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from miles_sim.engine.formats.call import CallPiece, Delta, Found, ParsedCall, Sent, Tools, dumps, known_calls
from miles_sim.engine.formats.dialect import Dialect
from miles_sim.engine.formats.glm_arguments import ArgumentsStream
from miles_sim.engine.formats.schema import argument_type
from miles_sim.reply import ToolCall

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_BLOCK = re.compile(f"{_OPEN}.*?{_CLOSE}", re.DOTALL)
_CALL = re.compile(rf"{_OPEN}(?P<name>.*?)(?:\\n|\n)(?P<arguments>.*){_CLOSE}", re.DOTALL)
_PAIR = re.compile(r"<arg_key>(.*?)</arg_key>(?:\\n|\s)*<arg_value>(.*?)</arg_value>", re.DOTALL)
_STREAMED = re.compile(rf"{_OPEN}(?P<name>.*?)(?:\\n|\n)(?P<arguments>.*?)(?P<end>{_CLOSE}|$)", re.DOTALL)


class Glm45:
    marker = _OPEN
    tagged = False

    def spell(self, calls: Sequence[ToolCall], *, after_text: bool, calls_before: int) -> str:
        return ("\n" if after_text else "") + "\n".join(_spelled(call) for call in calls)

    def parse(self, text: str, tools: Tools, dialect: Dialect) -> Found:
        calls: list[ParsedCall] = []
        blocks = [_CALL.search(block) for block in _BLOCK.findall(text)]
        if dialect.glm_plain and None in blocks:
            return Found(text)
        for found in filter(None, blocks):
            try:
                arguments = _arguments(found["arguments"], found["name"], tools, dialect)
                calls += known_calls({"name": found["name"], "parameters": arguments}, tools, dialect)
            except (TypeError, KeyError):  # a Python literal that no JSON can say; a schema that says nothing
                return Found(text)
        return Found(text.partition(_OPEN)[0].strip() if _OPEN in text else text, tuple(calls))

    def stream(self, tools: Tools, dialect: Dialect) -> "GlmStream | GlmWholeStream":
        return GlmWholeStream(self, tools, dialect) if dialect.glm_plain else GlmStream(tools, dialect)


class GlmStream:
    """Lets out a call's name at one step, then the tags as JSON, character by character. Names are not looked up."""

    def __init__(self, tools: Tools, dialect: Dialect) -> None:
        self._tools = tools
        self._dialect = dialect
        self._buffer = ""
        self._calls = Sent()
        self._json = ArgumentsStream("", tools)
        self._taken = 0

    def push(self, text: str) -> Delta:
        self._buffer += text
        if _OPEN not in self._buffer:
            return Delta(self._content())
        found = _STREAMED.search(self._buffer)
        name = found["name"].strip() if found else ""
        if found is None or not name:
            return Delta()
        pieces: list[CallPiece] = []
        if not self._calls.named:
            pieces.append(self._calls.name(name))
            self._calls.took({})
            self._json, self._taken = ArgumentsStream(name, self._tools), 0
            if not self._dialect.glm_streams_at_once:
                return Delta(calls=tuple(pieces))
        self._go_on(found, name, pieces)
        return Delta(calls=tuple(pieces))

    def rest(self) -> CallPiece | None:
        return self._calls.rest()

    def _content(self) -> str:
        longest = min(len(self._buffer), len(_OPEN))
        if any(_OPEN.startswith(self._buffer[-n:]) for n in range(1, longest + 1)):
            return ""
        said, self._buffer = self._buffer.replace(_CLOSE, ""), ""
        return said

    def _go_on(self, found: re.Match[str], name: str, pieces: list[CallPiece]) -> None:
        raw = found["arguments"].strip()
        more = self._json.push(raw[self._taken :])
        self._taken = max(self._taken, len(raw))
        if more:
            pieces.append(self._calls.arguments(more))
        if found["end"]:
            self._end(raw, name, pieces)
            self._buffer = self._buffer[found.end("end") :]

    def _end(self, raw: str, name: str, pieces: list[CallPiece]) -> None:
        at_once = self._dialect.glm_streams_at_once
        if self._json.empty:
            piece = self._calls.arguments("{}")
            if not at_once:
                self._calls.sent[self._calls.number] = ""
            pieces.append(piece)
        elif at_once or not self._json.said.endswith("}"):
            pieces.append(self._calls.arguments("}"))
        if _PAIR.search(raw):
            self._calls.took(_arguments(raw, name, self._tools, self._dialect))
        self._calls.next()


class GlmWholeStream:
    """Before 0.5.10: each call whole, once it has ended."""

    def __init__(self, format: Glm45, tools: Tools, dialect: Dialect) -> None:
        self._format, self._tools, self._dialect = format, tools, dialect
        self._buffer = ""
        self._calls = Sent()

    def push(self, text: str) -> Delta:
        self._buffer += text
        start, end = self._buffer.find(_OPEN), self._buffer.find(_CLOSE)
        if start < 0:
            said, self._buffer = self._buffer, ""
            return Delta("" if self._calls.number > 0 else said)
        if end < 0:
            said, self._buffer = self._buffer[:start], self._buffer[start:]
            return Delta(said)
        block, self._buffer = self._buffer[: end + len(_CLOSE)], self._buffer[end + len(_CLOSE) :]
        return self._whole(self._format.parse(block, self._tools, self._dialect))

    def rest(self) -> CallPiece | None:
        return self._calls.rest()

    def _whole(self, found: Found) -> Delta:
        if not found.calls:
            self._calls.name("")
            self._calls.took({})
            return Delta(found.text)
        call = found.calls[0]
        piece = replace(self._calls.name(call.name), arguments=call.arguments)
        self._calls.took(json.loads(call.arguments))
        self._calls.arguments(call.arguments)
        self._calls.next()
        return Delta(found.text, (piece,))


def _spelled(call: ToolCall) -> str:
    pairs = [
        f"<arg_key>{key}</arg_key>\n<arg_value>{value if isinstance(value, str) else dumps(value)}</arg_value>\n"
        for key, value in call.arguments.items()
    ]
    return f"{_OPEN}{call.name}\n{''.join(pairs)}{_CLOSE}"


def _arguments(tagged: str, name: str, tools: Tools, dialect: Dialect) -> dict[str, Any]:
    """Keys and values; what a schema calls a string becomes one, whatever it looks like."""
    arguments: dict[str, Any] = {}
    for key, given in _PAIR.findall(tagged):
        key = key.strip()
        kind = argument_type(name, key, tools, plain=dialect.glm_plain)
        text = given.strip() if dialect.glm_trims_values else given
        value = _value(text, kind, raw_strings=dialect.glm_strings_raw, plain=dialect.glm_plain)
        if dialect.glm_plain and kind == "string":
            value = text
        if kind == "string" and not isinstance(value, str):
            value = dumps(value) if isinstance(value, dict | list) else str(value)
        arguments[key] = value
    return arguments


def _value(text: str, kind: str | None, *, raw_strings: bool, plain: bool) -> Any:
    """JSON; JSON in a JSON string's escapes; a Python literal; else the text."""
    for read in (_json, _escaped_json):
        try:
            value = read(text)
        except (ValueError, TypeError):
            continue
        return _number(value) if not plain and kind == "number" and isinstance(value, str) else value
    if raw_strings and kind == "string":
        quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'"
        return text[1:-1] if quoted else text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _json(text: str) -> Any:
    return json.loads(text)


def _escaped_json(text: str) -> Any:
    return json.loads(json.loads(f'{{"tmp": "{text}"}}')["tmp"])


def _number(text: str) -> Any:
    try:
        return float(text) if "." in text or "e" in text.lower() else int(text)
    except ValueError:
        return text
