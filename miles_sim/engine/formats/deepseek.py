"""DeepSeek V3 and V3.1: calls between tokens of their own (SGLang function_call/deepseekv3*_detector.py)."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence

from miles_sim.engine.formats.call import (
    CallPiece,
    Delta,
    Found,
    ParsedCall,
    Sent,
    Tools,
    complete_json,
    dumps,
    known_calls,
)
from miles_sim.engine.formats.dialect import Dialect
from miles_sim.reply import ToolCall

_ALL, _ALL_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_ONE, _ONE_END, _SEP = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"
_BLOCK = re.compile(f"{_ONE}.*?{_ONE_END}", re.DOTALL)


class _DeepSeek(ABC):
    marker = _ALL
    tagged = True
    between = ""
    whole: re.Pattern[str]
    """Groups `name` and `arguments` of one call's block."""
    open: re.Pattern[str]
    """The same, of a call that may not have ended."""
    stripped: tuple[str, ...]
    """Tokens that are taken out of streamed content."""

    @abstractmethod
    def one(self, call: ToolCall) -> str:
        """One call, between its opening and closing token."""

    def spell(self, calls: Sequence[ToolCall], *, after_text: bool, calls_before: int) -> str:
        return _ALL + self.between.join(f"{_ONE}{self.one(call)}{_ONE_END}" for call in calls) + _ALL_END

    def parse(self, text: str, tools: Tools, dialect: Dialect) -> Found:
        calls: list[ParsedCall] = []
        for block in _BLOCK.findall(text):
            found = self.whole.search(block)
            if found is None:
                return Found(text)
            try:
                arguments = json.loads(found["arguments"])
            except json.JSONDecodeError:
                return Found(text)
            calls += known_calls({"name": found["name"], "parameters": arguments}, tools, dialect)
        return Found(text[: text.index(_ALL)].strip(), tuple(calls))

    def stream(self, tools: Tools, dialect: Dialect) -> "DeepSeekStream":
        return DeepSeekStream(self)


class DeepSeekV3(_DeepSeek):
    between = "\n"
    whole = re.compile(
        f"{_ONE}.*{_SEP}(?P<name>.*)\n```json\n(?P<arguments>.*)\n```{_ONE_END}",
        re.DOTALL,
    )
    open = re.compile(f"{_ONE}.*{_SEP}(?P<name>.*)\n```json\n(?P<arguments>.*)\n```.*", re.DOTALL)
    stripped = (_ALL_END, "```", _ONE_END)

    def one(self, call: ToolCall) -> str:
        return f"function{_SEP}{call.name}\n```json\n{dumps(call.arguments)}\n```"


class DeepSeekV31(_DeepSeek):
    whole = re.compile(f"{_ONE}(?P<name>.*){_SEP}(?P<arguments>.*){_ONE_END}", re.DOTALL)
    open = re.compile(f"{_ONE}(?P<name>.*){_SEP}(?P<arguments>.*?)(?P<end>{_ONE_END}|$)", re.DOTALL)
    stripped = (_ALL_END, _ONE_END)

    def one(self, call: ToolCall) -> str:
        return f"{call.name}{_SEP}{dumps(call.arguments)}"


class DeepSeekStream:
    """Lets out a call's name at one step and arguments from the next one on; V3's only once their block has closed.

    Names are not looked up among the request's tools.
    """

    def __init__(self, format: _DeepSeek) -> None:
        self._format = format
        self._buffer = ""
        self._last = ""
        self._calls = Sent()

    def push(self, text: str) -> Delta:
        self._buffer += text
        if _ALL not in self._buffer and _ONE not in self._buffer:
            self._buffer = ""
            for token in self._format.stripped:
                text = text.replace(token, "")
            return Delta(text)
        found = self._format.open.search(self._buffer)
        if found is None:
            return Delta()
        if not self._calls.named:
            named = self._calls.name(found["name"].strip())
            self._calls.took({})
            return Delta(calls=(named,))
        return self._arguments(found, found["arguments"].strip())

    def rest(self) -> CallPiece | None:
        return self._calls.rest()

    def _arguments(self, found: re.Match[str], arguments: str) -> Delta:
        more = arguments[len(self._last) :] if arguments.startswith(self._last) else arguments
        pieces = (self._calls.arguments(more),) if more else ()
        self._last += more
        if complete_json(arguments):
            self._calls.took(json.loads(arguments))
            self._buffer = self._after(found)
            self._calls.next()
            self._last = ""
        return Delta(calls=pieces)

    def _after(self, found: re.Match[str]) -> str:
        """What stands behind the call that has ended."""
        if "end" in found.re.groupindex:
            return self._buffer[found.end("end") :] if found["end"] else ""
        block = _BLOCK.search(self._buffer)
        return self._buffer[block.end() :] if block else ""
