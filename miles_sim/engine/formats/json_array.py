"""A JSON array of calls: what a schema holds a model to whose format no grammar knows (SGLang
function_call/json_array_parser.py, serving_chat.py `_process_tool_calls`)."""

import json
from collections.abc import Sequence
from typing import Any

from miles_sim.engine.formats.call import Delta, Found, ParsedCall, Tools, UnreadableCall, dumps
from miles_sim.engine.formats.dialect import Dialect
from miles_sim.engine.formats.qwen import QwenStream, read_json
from miles_sim.reply import ToolCall


class JsonArray:
    marker = ""
    tagged = False

    def spell(self, calls: Sequence[ToolCall], *, after_text: bool, calls_before: int) -> str:
        return dumps([{"name": call.name, "parameters": call.arguments} for call in calls])

    def parse(self, text: str, tools: Tools, dialect: Dialect) -> Found:
        try:
            calls = [
                ParsedCall(call["name"], dumps(call["parameters"]), number)
                for number, call in enumerate(json.loads(text))
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableCall(str(error)) from None
        return Found("", tuple(calls))

    def stream(self, tools: Tools, dialect: Dialect) -> "JsonArrayStream":
        return JsonArrayStream(tools, dialect)


class JsonArrayStream(QwenStream):
    """Lets out calls as `QwenStream` does."""

    def push(self, text: str) -> Delta:
        self._buffer += text
        if "[" in self._buffer or "{" in self._buffer or self._separated:
            return self._call()
        said, self._buffer = self._buffer.replace("]", ""), ""
        return Delta(said)

    @property
    def _separated(self) -> bool:
        return self._calls.number > 0 and self._buffer.startswith(",")

    def _located(self) -> tuple[int, Any, int] | None:
        bracket = self._buffer.find("[") + 1
        by_comma = self._separated and (self._dialect.separator_first or not bracket)
        start = 1 if by_comma else bracket
        whole = not self._calls.named
        found = read_json(self._buffer[start:], whole_strings=whole)
        if found is None and by_comma and bracket:
            start = bracket
            found = read_json(self._buffer[start:], whole_strings=whole)
        return None if found is None else (start, *found)
