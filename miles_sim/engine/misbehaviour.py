"""How a reply goes wrong on request: a pure function from the parts of a good one to those of a bad one."""

import re
from dataclasses import dataclass, replace

from miles_sim.engine.formats.call import dumps
from miles_sim.reply import Misbehaviour, ToolCall
from miles_sim.tokenizer import ByteTokenizer

REPEATS = 8
"""Times that a special token is repeated."""


@dataclass(frozen=True)
class Parts:
    """One reply before it is spelled; ids but for the calls."""

    thought: list[int]
    content: list[int]
    calls: tuple[ToolCall, ...] = ()
    tail: tuple[int, ...] = ()
    """Between all that is said and the stop token."""
    unclosed: bool = False
    """The thought does not end."""
    silent: bool = False
    """There is not even an empty thought."""
    tight: bool = False
    """No white space stands behind a thought: a grammar leaves no room for it."""
    fault: Misbehaviour | None = None

    def broken(self, spelled: str) -> str:
        """The spelled calls, the arguments of the first spoiled where that is the fault."""
        if self.fault is None or not self.fault.startswith("bad_json"):
            return spelled
        good = dumps(self.calls[0].arguments)
        if good not in spelled:
            return spelled.replace("</arg_value>", "", 1)
        return spelled.replace(good, _bad_json(good, self.fault), 1)


def misbehaved(parts: Parts, kind: Misbehaviour, tokenizer: ByteTokenizer) -> Parts:
    """The reply as it goes wrong. Content and thought stay what they were but for what the kind adds."""
    parts = replace(parts, fault=kind)
    if kind == "empty":
        return Parts([], [], silent=True, fault=kind)
    if kind == "unclosed_think":
        return replace(parts, unclosed=True)
    if kind == "unknown_tool":
        first = parts.calls[0]
        return replace(parts, calls=(first.model_copy(update={"name": f"{first.name}_v2"}), *parts.calls[1:]))
    if kind == "wrong_arguments":
        return replace(parts, calls=tuple(c.model_copy(update={"arguments": _WRONG}) for c in parts.calls))
    if kind == "leaked_role":
        half = len(parts.content) // 2
        return replace(parts, content=[*parts.content[:half], role_token(tokenizer), *parts.content[half:]])
    if kind == "repeated_specials":
        return replace(parts, tail=(role_token(tokenizer),) * REPEATS)
    if kind == "white_space":
        return replace(parts, content=[*b"\n  \t", *parts.content, *b" \n\n"])
    return parts


_WRONG = {"unasked": [1, {"deep": None}]}


def role_token(tokenizer: ByteTokenizer) -> int:
    """The special token that opens a message, of those that end no reply: the assistant's, if it has one."""
    family = tokenizer.family
    openers = [text for text in family.specials if text not in (family.text_stop, family.call_stop, family.eos)]
    return tokenizer.special_ids[next((text for text in openers if "ssistant" in text), openers[0])]


def _bad_json(good: str, kind: Misbehaviour) -> str:
    if kind == "bad_json_open":
        return good[:-1]
    if kind == "bad_json_quotes":
        return good.replace('"', "'")
    if kind == "bad_json_comma":
        return good[:-1] + ",}"
    return re.sub(r'"(\w+)": ', r"\1: ", good)
