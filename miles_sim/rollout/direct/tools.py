"""Tools of the direct path: calls found in a reply's text, run one after the other, answered as messages."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from miles_sim.rollout.errors import SettingsError, ToolError


class ToolCallItem(Protocol):
    """One call, as SGLang's `ToolCallItem` has it."""

    @property
    def name(self) -> str | None: ...

    @property
    def parameters(self) -> str:
        """Arguments as JSON, as the model spelled them."""
        ...


class ToolCallParser(Protocol):
    """Finds calls in a whole reply: the shape of SGLang's `FunctionCallParser`, which can be passed as it is."""

    def parse_non_stream(self, full_text: str) -> tuple[str, Sequence[ToolCallItem]]:
        """The text beside the calls, and the calls in order."""
        ...


Execute = Callable[[str, dict[str, Any]], Awaitable[str]]
"""`await execute(name, arguments)` gives what the model is answered."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What a multi-turn rollout may call."""

    specs: Sequence[Mapping[str, Any]]
    """Rendered into the prompt; OpenAI's shape."""
    parser: ToolCallParser
    execute: Execute
    max_turns: int = 16
    """Most replies of one rollout."""

    def __post_init__(self) -> None:
        if type(self.max_turns) is not int or self.max_turns < 1:
            raise SettingsError(f"max_turns: {self.max_turns!r} is not a whole number of at least 1")


@dataclass(frozen=True)
class Call:
    """One call of `TaggedJsonParser`."""

    name: str
    parameters: str


class TaggedJsonParser:
    """Calls spelled `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, as Hermes and Qwen 2.5 do."""

    _block = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)

    def parse_non_stream(self, full_text: str) -> tuple[str, Sequence[Call]]:
        """What is no JSON object with a name is no call, and stays in the text."""
        calls: list[Call] = []

        def taken(match: "re.Match[str]") -> str:
            call = _tagged(match.group(1))
            if call is not None:
                calls.append(call)
            return match.group(0) if call is None else ""

        return self._block.sub(taken, full_text).strip(), calls


def _tagged(block: str) -> Call | None:
    try:
        found = json.loads(block)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return None
    return Call(found["name"], json.dumps(found.get("arguments", {}), ensure_ascii=False))


async def answer_calls(calls: Sequence[ToolCallItem], execute: Execute, *, turn: int) -> list[dict[str, Any]]:
    """One tool message a call, in order; ids are those of the turn and the call's place, the same in every run.

    Arguments that are no JSON object are answered with the fault, for the model to mend. ToolError where the tool
    gives no string; what a tool raises goes through.
    """
    messages = []
    for number, call in enumerate(calls):
        arguments, fault = _arguments(call)
        name = call.name or ""
        content: Any = fault if fault is not None else await execute(name, arguments)
        if not isinstance(content, str):
            raise ToolError(f"tool {name!r}: returned {type(content).__name__}, not a string")
        messages.append({"role": "tool", "tool_call_id": f"call_{turn}_{number}", "content": content, "name": name})
    return messages


def _arguments(call: ToolCallItem) -> tuple[dict[str, Any], str | None]:
    """The arguments, or what is wrong with them."""
    if not call.parameters:
        return {}, None
    try:
        found = json.loads(call.parameters)
    except (ValueError, TypeError, RecursionError) as error:
        return {}, f"error: arguments of {call.name}: not JSON: {error}"
    if not isinstance(found, dict):
        return {}, f"error: arguments of {call.name}: {type(found).__name__}, not an object"
    return found, None
