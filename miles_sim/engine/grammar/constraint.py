"""What a reply has to obey where a request constrains decoding, and a reply that obeys it."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal, Protocol

from miles_sim.engine.errors import NotModelledError, RequestError
from miles_sim.engine.grammar.regex import parsed, text_of_pattern
from miles_sim.engine.grammar.schema import SchemaError, instance
from miles_sim.reply import Misbehaviour, Reply, ToolCall

Kind = Literal["json_schema", "regex", "ebnf", "structural_tag", "calls", "call_array"]
ANY_JSON = "$$ANY$$"
"""The schema that allows all JSON, as SGLang spells it (xgrammar_backend.py `dispatch_json`)."""
_BEFORE_THE_GRAMMAR: frozenset[Misbehaviour] = frozenset({"unclosed_think", "same_call_id"})
"""What can still go wrong: a thought stands before the grammar, ids of calls are no text."""


@dataclass(frozen=True)
class Constraint:
    """One grammar. `calls`: tool calls and nothing else, spelled as the model's family does; `call_array`: calls as
    one JSON array of names and parameters."""

    kind: Kind
    text: str = ""
    """The schema, the pattern; of calls none, for their tools stand beside it."""
    thinks: bool = field(default=False, repr=False)
    """A thought stands before what the grammar binds."""
    place: str = field(default="", repr=False, compare=False)
    """Where the request has it."""

    def served(self, *, native: bool, thinks: bool) -> "Constraint":
        """As a server holds to it. `native`: its parser's format is one that a grammar can be made of."""
        kind: Kind = "call_array" if self.kind == "calls" and not native else self.kind
        return replace(self, kind=kind, thinks=thinks)


def constraints_of(values: Mapping[str, Any], *, prefix: str) -> tuple[Constraint, ...]:
    """One for each grammar that sampling parameters name; `prefix`: of the field in the request."""
    kinds: tuple[Kind, ...] = ("json_schema", "regex", "ebnf", "structural_tag")
    return tuple(Constraint(kind, values[kind], place=prefix + kind) for kind in kinds if values.get(kind) is not None)


class ResponseFormat(Protocol):
    """OpenAI's `response_format`."""

    @property
    def type(self) -> str: ...

    @property
    def json_schema(self) -> Any: ...


def format_schema(asked: ResponseFormat) -> str | None:
    """The schema of a `response_format`; None for one that asks for none."""
    if asked.type == "structural_tag":
        raise NotModelledError("response_format", asked.type, "text, json_object, json_schema")
    if asked.type == "json_object":
        return '{"type": "object"}'
    if asked.type != "json_schema" or asked.json_schema is None or asked.json_schema.schema_ is None:
        return None
    return json.dumps(asked.json_schema.schema_)


def check_constraint(constraint: Constraint, tools: Sequence[Mapping[str, Any]] | None, refusal: str) -> None:
    """`RequestError` in the release's words (`refusal`) for a grammar that cannot be compiled, `NotModelledError` for
    one that no reply can be drawn from."""
    named = constraint.place or constraint.kind
    if constraint.kind in ("ebnf", "structural_tag"):
        raise NotModelledError(named, constraint.text, "json_schema, regex")
    try:
        _drawn(constraint, tools, Random(0))
    except (SchemaError, re.error, RecursionError, ValueError) as error:
        if isinstance(error, RequestError):
            raise
        kind = "regex" if constraint.kind == "regex" else "json"
        raise RequestError(refusal.format(kind=kind, key=(kind, constraint.text), error=error)) from None


def obeyed(reply: Reply, constraint: Constraint, tools: Sequence[Mapping[str, Any]] | None, random: Random) -> Reply:
    """The reply as the grammar lets it be: its own text or calls where they obey, else drawn ones.

    A JSON text obeys where it is JSON; a schema is not held against what was scripted. The thought goes where the
    grammar leaves no room for it.
    """
    change: dict[str, Any] = {"text": None, "tokens": 0, "tool_calls": ()}
    if constraint.kind == "calls":
        change["tool_calls"] = _own_calls(reply, tools) or _calls(_proved(constraint, tools, random))
    elif constraint.kind == "call_array" and (own := _own_calls(reply, tools)):
        change["text"] = _spelled([{"name": call.name, "parameters": call.arguments} for call in own])
    else:
        own_text = reply.text if reply.text is not None and _obeys(reply.text, constraint) else None
        change["text"] = _text(constraint, tools, random) if own_text is None else own_text
    if not constraint.thinks:
        change["reasoning"] = 0
    if reply.misbehave not in _BEFORE_THE_GRAMMAR:
        change["misbehave"] = None
    return reply.model_copy(update=change)


def _own_calls(reply: Reply, tools: Sequence[Mapping[str, Any]] | None) -> tuple[ToolCall, ...]:
    names = {tool["function"]["name"] for tool in tools or ()}
    return tuple(call for call in reply.tool_calls if call.name in names)


def _obeys(text: str, constraint: Constraint) -> bool:
    if constraint.kind == "regex":
        return re.fullmatch(constraint.text, text) is not None
    try:
        json.loads(text)
    except ValueError:
        return False
    return constraint.kind == "json_schema"


def _text(constraint: Constraint, tools: Sequence[Mapping[str, Any]] | None, random: Random) -> str:
    drawn = _proved(constraint, tools, random)
    return drawn if constraint.kind == "regex" else _spelled(drawn)


def _proved(constraint: Constraint, tools: Sequence[Mapping[str, Any]] | None, random: Random) -> Any:
    """As `_drawn`; where this chance leads into a corner of the grammar that has nothing, what `check_constraint`
    found."""
    try:
        return _drawn(constraint, tools, random)
    except (SchemaError, NotModelledError, re.error):
        return _drawn(constraint, tools, Random(0))


def _drawn(constraint: Constraint, tools: Sequence[Mapping[str, Any]] | None, random: Random) -> Any:
    """A text for a pattern, a value for a schema, calls as names and parameters for tools."""
    named = constraint.place or constraint.kind
    if constraint.kind == "regex":
        parsed(constraint.text)
        return text_of_pattern(constraint.text, random, field=named)
    if constraint.kind == "json_schema":
        schema = {} if constraint.text == ANY_JSON else json.loads(constraint.text)
        return instance(schema, random, field=named)
    tool = random.choice(list(tools or ()))["function"]
    schema = {"type": "object", **(tool.get("parameters") or {})}
    return [{"name": tool["name"], "parameters": instance(schema, random, field="tools[].function.parameters")}]


def _calls(drawn: Sequence[Mapping[str, Any]]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(name=call["name"], arguments=call["parameters"]) for call in drawn)


def _spelled(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
