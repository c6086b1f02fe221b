"""Kimi K2: calls under an id of the model's own (SGLang function_call/kimik2_detector.py)."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from miles_sim.engine.formats.call import CallPiece, Delta, Found, ParsedCall, Sent, Tools, complete_json, dumps
from miles_sim.engine.formats.dialect import Dialect
from miles_sim.reply import ToolCall

_ALL, _ALL_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_ONE, _ONE_END, _ARGUMENTS = "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>"
_TOKENS = (_ALL, _ALL_END, _ONE, _ONE_END, _ARGUMENTS)
_ID = re.compile(r"(?:functions\.)?(?P<name>[\w.\-]+):(?P<number>\d+)$")


def _call(id: str, *, ends: bool) -> re.Pattern[str]:
    end = rf"\s*{re.escape(_ONE_END)}" if ends else ""
    arguments = r"\{.*?\}" if ends else r"\{.*"
    return re.compile(
        rf"{re.escape(_ONE)}\s*(?P<id>{id})\s*{re.escape(_ARGUMENTS)}\s*(?P<arguments>{arguments}){end}", re.DOTALL
    )


_ENDED = re.compile(f"{re.escape(_ONE)}.*?{re.escape(_ONE_END)}", re.DOTALL)
_ANY_ID, _OWN_ID = r"[^\s<|]+", r"[\w.\-]+:\d+"
_WHOLE = {True: _call(_ANY_ID, ends=True), False: _call(_OWN_ID, ends=True)}
_OPEN = {True: _call(_ANY_ID, ends=False), False: _call(_OWN_ID, ends=False)}


class KimiK2:
    marker = _ALL
    tagged = True

    def spell(self, calls: Sequence[ToolCall], *, after_text: bool, calls_before: int) -> str:
        spelled = [
            f"{_ONE}{call_id(call.name, number)}{_ARGUMENTS}{dumps(call.arguments)}{_ONE_END}"
            for number, call in enumerate(calls, start=calls_before)
        ]
        return _ALL + "".join(spelled) + _ALL_END

    def parse(self, text: str, tools: Tools, dialect: Dialect) -> Found:
        """Arguments stay as they were sampled, JSON or not, and names are not looked up."""
        calls: list[ParsedCall] = []
        for found in _WHOLE[dialect.kimi_any_id].finditer(text):
            own = _ID.match(found["id"])
            name = own["name"] if own else _guessed(found["id"], found["arguments"], tools)
            if name is not None:
                number = len(calls) if dialect.kimi_counts_calls else int(own["number"] if own else found["id"])
                calls.append(ParsedCall(name, found["arguments"], number))
        return Found(text[: text.index(_ALL)], tuple(calls))

    def stream(self, tools: Tools, dialect: Dialect) -> "KimiStream | KimiStreamByMatch":
        return KimiStream(tools) if dialect.kimi_counts_calls else KimiStreamByMatch(tools, dialect)


def call_id(name: str, number: int) -> str:
    """A call's id, unique in a conversation: `number` counts all of its calls."""
    return f"functions.{name}:{number}"


def _guessed(id: str, arguments: str, tools: Tools) -> str | None:
    """The tool whose parameters fit best, for an id that is a number alone."""
    if not id.isdigit():
        return None
    return _fitting(arguments, tools)


def _fitting(arguments: str, tools: Tools) -> str | None:
    if len(tools) == 1:
        return str(tools[0]["function"]["name"])
    try:
        keys = set(json.loads(arguments))
    except (ValueError, TypeError):
        return None
    best: tuple[int, str] | None = None
    for tool in tools:
        properties = set((tool["function"].get("parameters") or {}).get("properties") or {})
        score = len(keys & properties) - len(keys - properties)
        if properties and (best is None or score > best[0]):
            best = score, tool["function"]["name"]
    return best[1] if best else None


def _bare(text: str, tokens: Sequence[str] = _TOKENS) -> str:
    for token in tokens:
        text = text.replace(token, "")
    return text


class KimiStream:
    """Lets out a call's name and its first arguments together, from 0.5.16 on."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._buffer = ""
        self._last = ""
        self._name: str | None = None
        self._calls = Sent()

    def push(self, text: str) -> Delta:
        self._buffer += text
        if self._name is None and _ALL not in self._buffer and _ONE not in self._buffer:
            return Delta(self._content())
        said: list[str] = []
        pieces: list[CallPiece] = []
        while self._step(said, pieces):
            pass
        return Delta("".join(said), tuple(pieces))

    def rest(self) -> CallPiece | None:
        return self._calls.rest()

    def _content(self) -> str:
        """The buffer, less an end of it that a call may begin with."""
        longest = max(len(_ALL), len(_ONE)) - 1
        cut = next(
            (
                len(self._buffer) - n
                for n in range(min(len(self._buffer), longest), 1, -1)
                if _ALL.startswith(self._buffer[-n:]) or _ONE.startswith(self._buffer[-n:])
            ),
            len(self._buffer),
        )
        said, self._buffer = self._buffer[:cut], self._buffer[cut:]
        return _bare(said)

    def _step(self, said: list[str], pieces: list[CallPiece]) -> bool:
        """Reads on; False where more text is needed."""
        begin = self._buffer.find(_ONE)
        if begin < 0:
            said.append(self._content())
            return False
        if begin:
            said.append(_bare(self._buffer[:begin]))
            self._buffer = self._buffer[begin:]
        argued, again = self._buffer.find(_ARGUMENTS), self._buffer.find(_ONE, len(_ONE))
        if again >= 0 and (argued < 0 or again < argued):  # a call that breaks off before its arguments
            return self._go_on(again)
        return argued >= 0 and self._call(argued, pieces)

    def _call(self, argued: int, pieces: list[CallPiece]) -> bool:
        end = self._buffer.find(_ONE_END)
        arguments = self._buffer[argued + len(_ARGUMENTS) : end if end >= 0 else None]
        fresh = self._name is None
        if fresh:
            self._name = self._named(self._buffer[len(_ONE) : argued].strip(), arguments)
            if self._name is None:
                return end >= 0 and self._go_on(end + len(_ONE_END))
            self._calls.name(self._name)
            self._calls.took({})
        more = arguments[len(self._last) :]
        if more or fresh:
            self._last += more
            pieces.append(replace(self._calls.arguments(more), name=self._name if fresh else None))
        if end < 0:
            return False
        self._calls.next()
        return self._go_on(end + len(_ONE_END))

    def _named(self, id: str, arguments: str) -> str | None:
        own = _ID.match(id)
        if own:
            return own["name"]
        return _fitting(arguments, self._tools) if not id or id.isdigit() else None

    def _go_on(self, at: int) -> bool:
        self._buffer = self._buffer[at:]
        self._last, self._name = "", None
        return True


class KimiStreamByMatch:
    """Before 0.5.16: the name at one step, arguments from the next one on."""

    def __init__(self, tools: Tools, dialect: Dialect) -> None:
        self._tools = tools
        self._dialect = dialect
        self._open = _OPEN[dialect.kimi_any_id]
        self._name: str | None = None
        self._buffer = ""
        self._last = ""
        self._calls = Sent()

    def push(self, text: str) -> Delta:
        self._buffer += text
        if _ALL not in self._buffer and _ONE not in self._buffer:
            self._buffer = ""
            return Delta(_bare(text, _TOKENS if self._dialect.kimi_strips_tokens else (_ALL_END, _ONE_END)))
        found = self._open.search(self._buffer)
        if found is None:
            return Delta()
        if self._name is None:
            own = _ID.match(found["id"])
            self._name = own["name"] if own else _guessed(found["id"], found["arguments"], self._tools)
        if self._name is None:
            return Delta()
        if not self._calls.named:
            named = self._calls.name(self._name)
            self._calls.took({})
            return Delta(calls=(named,))
        return self._arguments(found["arguments"])

    def rest(self) -> CallPiece | None:
        return self._calls.rest()

    def _arguments(self, arguments: str) -> Delta:
        rest = arguments[len(self._last) :] if arguments.startswith(self._last) else arguments
        more = rest.split(_ONE_END, 1)[0]
        pieces = (self._calls.arguments(more),) if more else ()
        self._last += more
        whole = arguments.split(_ONE_END, 1)[0]
        if complete_json(whole):
            self._calls.took(json.loads(whole))
            ended = _ENDED.search(self._buffer)
            self._buffer = self._buffer[ended.end() :] if ended else ""
            self._calls.next()
            self._last, self._name = "", None
        return Delta(calls=pieces)
