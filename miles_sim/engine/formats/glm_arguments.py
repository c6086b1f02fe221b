"""A GLM call's keys and values as JSON, while they are sampled (SGLang function_call/glm4_moe_detector.py)."""

import json

from miles_sim.engine.formats.call import Tools, dumps
from miles_sim.engine.formats.schema import argument_type

_VALUE_END = "</arg_value>"


class ArgumentsStream:
    """Takes the tagged text of one call, gives JSON: a string's characters as they come, its quotes around them.

    The outer brace is opened with the first key and left open.
    """

    def __init__(self, function: str, tools: Tools) -> None:
        self._function, self._tools = function, tools
        self._read = self._before_key
        self._pending = ""
        self._key = ""
        self._kind = "string"
        self._started = False
        self.empty = True
        """No key so far."""
        self.said = ""
        """All JSON so far."""

    def push(self, text: str) -> str:
        before = len(self.said)
        for character in text:
            self._pending += character
            self._read()
        return self.said[before:]

    def _before_key(self) -> None:
        if self._pending.endswith("<arg_key>"):
            self.said += "{" if self.empty else ", "
            self.empty = False
            self._turn(self._in_key)

    def _in_key(self) -> None:
        if self._pending.endswith("</arg_key>"):
            self._key = self._pending.removesuffix("</arg_key>").strip()
            self.said += f"{dumps(self._key)}: "
            self._turn(self._before_value)

    def _before_value(self) -> None:
        if self._pending.endswith("<arg_value>"):
            self._kind = argument_type(self._function, self._key, self._tools) or "string"
            self._started = False
            self._turn(self._in_value)

    def _in_value(self) -> None:
        if self._pending.endswith(_VALUE_END):
            self._end_value(self._pending.removesuffix(_VALUE_END))
            self._turn(self._before_key)
        elif not _VALUE_END.startswith(self._pending):
            self._say(self._pending)
            self._pending = ""

    def _say(self, text: str) -> None:
        if self._kind == "string":
            self.said += ("" if self._started else '"') + json.dumps(text, ensure_ascii=False)[1:-1]
        else:
            self.said += text
        self._started = True

    def _end_value(self, last: str) -> None:
        if not self._started:
            self.said += {"string": '""', "number": ""}.get(self._kind, "")
        elif last:
            self._say(last)
        if self._kind == "string" and self._started:
            self.said += '"'

    def _turn(self, read: "object") -> None:
        self._read, self._pending = read, ""  # type: ignore[assignment]
