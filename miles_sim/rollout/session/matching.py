"""When a replayed message counts as the stored one.

A built-in matcher is a function from a message to a key: equal keys, equal messages. So stored histories can be
indexed, and finding a request's place costs its own length. An own matcher is a function of two messages, without keys.
"""

import inspect
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import orjson

from miles_sim.rollout.errors import MatcherError, MessageValidationError
from miles_sim.rollout.hook import resolve_hook
from miles_sim.rollout.settings import MessageMatcher

Message = Mapping[str, Any]

COMPARED = ("role", "content", "reasoning_content", "tool_calls")
"""What chat templates read of a message; all else in it is a client's own and never compared."""


@dataclass(frozen=True)
class KeyedMatcher:
    """Messages are the same if `key` gives the same for both."""

    name: str
    key: Callable[[Message], Hashable]

    def same(self, stored: Message, replayed: Message) -> bool:
        return self.key(stored) == self.key(replayed)


@dataclass(frozen=True)
class ComparingMatcher:
    """Messages are the same if an own function says so."""

    name: str
    compare: MessageMatcher

    def same(self, stored: Message, replayed: Message) -> bool:
        """The function's verdict; `MatcherError` if it raises or gives no bool."""
        try:
            verdict: object = self.compare(dict(stored), dict(replayed))
        except Exception as error:
            raise MatcherError(f"message_matcher: {self.name} raised {type(error).__name__}: {error}") from error
        if not isinstance(verdict, bool):
            if inspect.iscoroutine(verdict):
                verdict.close()
            raise MatcherError(f"message_matcher: {self.name} gave {type(verdict).__name__}, not a bool")
        return verdict


Matcher = KeyedMatcher | ComparingMatcher


def resolve(setting: str | MessageMatcher) -> Matcher:
    """The matcher that a setting names: a built-in, a dotted path, or a function of (stored, replayed)."""
    found = resolve_hook("message_matcher", setting, BUILT_IN)
    if isinstance(found, KeyedMatcher | ComparingMatcher):
        return found
    name = setting if isinstance(setting, str) else getattr(setting, "__qualname__", repr(setting))
    return ComparingMatcher(name=name, compare=found)


def strict_key(message: Message) -> Hashable:
    """All that a template reads, falsy spellings (`null`, `""`, `[]`) alike, `index` of tool calls left out."""
    return tuple(_frozen(_calls(message) if field == "tool_calls" else _value(message, field)) for field in COMPARED)


def loose_tool_call_key(message: Message) -> Hashable:
    """As `strict_key`, but tool arguments by what they say: key order, white space, string or object form are free."""
    calls = _calls(message)
    if isinstance(calls, list):
        loose: Hashable = tuple(_loose_call(call) for call in calls)
    else:
        loose = _frozen(calls)
    return (*(_frozen(_value(message, field)) for field in COMPARED[:3]), loose)


def role_content_key(message: Message) -> Hashable:
    """Role and content alone; tool calls and reasoning are taken from what is stored."""
    return tuple(_frozen(_value(message, field)) for field in COMPARED[:2])


BUILT_IN: dict[str, Matcher] = {
    "strict": KeyedMatcher("strict", strict_key),
    "loose_tool_call": KeyedMatcher("loose_tool_call", loose_tool_call_key),
    "role_content_only": KeyedMatcher("role_content_only", role_content_key),
}


def differing(stored: Message, replayed: Message) -> list[str]:
    """Names of the compared fields in which two messages are not strictly the same."""
    pairs = zip(COMPARED, _fields(stored), _fields(replayed), strict=True)
    return [field for field, left, right in pairs if left != right]


def same_reply(stored: Message, replayed: Message) -> bool:
    """Whether `replayed` is the generated reply `stored`, reasoning aside. An empty reply is no one's."""
    left, right = _fields(stored), _fields(replayed)
    said = (left[1], left[3])
    return said != (None, None) and left[0] == right[0] and said == (right[1], right[3])


def tools_key(tools: Sequence[Mapping[str, Any]] | None) -> bytes:
    """Equal for tool lists that say the same; the order of keys is free, that of tools is not. No list: empty.

    MessageValidationError for a list that is nested too deeply to be spelt out.
    """
    try:
        return orjson.dumps(tools, option=orjson.OPT_SORT_KEYS) if tools else b""
    except orjson.JSONEncodeError as error:
        raise MessageValidationError(f"tools: nested too deeply: {error}") from None


def same_tools(a: Sequence[Mapping[str, Any]] | None, b: Sequence[Mapping[str, Any]] | None) -> bool:
    """The definitions say the same, whatever the order of their keys."""
    return tools_key(a) == tools_key(b)


def _fields(message: Message) -> tuple[Any, ...]:
    key = strict_key(message)
    return key if isinstance(key, tuple) else (key,)


def _value(message: Message, field: str) -> Any:
    value = message.get(field)
    return None if value in ("", []) else value


def _calls(message: Message) -> Any:
    """Tool calls less `index`: engines add it where clients drop or renumber it, and no template reads it."""
    calls = _value(message, "tool_calls")
    if not isinstance(calls, list):
        return calls
    return [{k: v for k, v in call.items() if k != "index"} if isinstance(call, Mapping) else call for call in calls]


def _frozen(value: Any) -> Hashable:
    """A hashable stand-in, equal for equal JSON; `true` is not 1."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, Mapping):
        return "object", frozenset((name, _frozen(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return "array", tuple(map(_frozen, value))
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, float):
        return Decimal(str(value))
    frozen: Hashable = value
    return frozen


def _loose_call(call: Any) -> Hashable:
    if not isinstance(call, Mapping) or not isinstance(call.get("function"), Mapping):
        return _frozen(call)
    function = {k: _arguments(v) if k == "arguments" else _frozen(v) for k, v in call["function"].items()}
    rest = {k: v for k, v in call.items() if k != "function"}
    return _frozen(rest), frozenset(function.items())


def _arguments(value: Any) -> Hashable:
    """The object that arguments spell; what spells none stands for itself."""
    if value is None or value == "":
        return _frozen({})
    if not isinstance(value, str):
        return _frozen(value)
    try:
        spelt = json.loads(
            value, object_pairs_hook=_unique, parse_int=Decimal, parse_float=Decimal, parse_constant=_no_constant
        )
        return _frozen(spelt) if isinstance(spelt, dict) else value
    except (ValueError, ArithmeticError, RecursionError):
        return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object with one key twice has no one meaning")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
