"""Faults of the model layer: what the model says is not what was hoped for.

It was said all the same: each id is trained as it was sampled. Where the agent can make nothing of it, the agent fails.
"""

from typing import Any, get_args

from pydantic import Field, ValidationError

from miles_sim.document import Document
from miles_sim.faults.kind import NoParams, Verdict, kind
from miles_sim.faults.strike import CannotStrike
from miles_sim.reply import CALL_MISBEHAVIOUR, Misbehaviour, Reply

_SAID = "the model said it: the ids are trained as they were sampled, whatever they mean"
_NO_CALL = "the model said it, so it is trained; there is no call that the agent could answer, and it may end with that"
_CUT = "the reply is cut at the bound that was asked for: it is kept and marked, and nothing goes on from it"

_STATEMENTS: dict[str, str] = {
    "bad_json_open": "The arguments of a tool call lose their last brace.",
    "bad_json_quotes": "The arguments of a tool call are spelled with single quotes.",
    "bad_json_comma": "The arguments of a tool call have a comma before their last brace.",
    "bad_json_bare": "The arguments of a tool call have keys without quotes.",
    "unknown_tool": "The model calls a tool that there is none of.",
    "wrong_arguments": "The model calls a tool with arguments that no schema asked for.",
    "same_call_id": "All calls of a reply have one id.",
    "unclosed_think": "A thought does not end before the content does.",
    "leaked_role": "The token that opens a message stands in the midst of a reply.",
    "empty": "The model says nothing but the stop token.",
    "repeated_specials": "A special token comes again and again at a reply's end.",
    "white_space": "White space stands around a reply.",
    "echo": "The model repeats the end of its prompt.",
}


def spoiled(reply: Reply, **update: Any) -> Reply:
    """The reply with other fields; `CannotStrike` where it cannot be said like that."""
    try:
        return Reply.model_validate({**dict(reply), **update})
    except ValidationError as error:
        raise CannotStrike(error.errors()[0]["msg"].removeprefix("Value error, ")) from None


def _misbehaves(how: Misbehaviour) -> None:
    def effect(params: NoParams, reply: Reply) -> Reply:
        return spoiled(reply, misbehave=how)

    effect.__doc__ = _STATEMENTS[how]
    breaks = how in CALL_MISBEHAVIOUR or how in ("empty", "unclosed_think", "echo")
    verdict: Verdict = "degrade" if breaks else "tolerate"
    reason = _NO_CALL if breaks else _SAID
    kind(f"model-{how.replace('_', '-')}", layer="model", edge="model", verdict=verdict, reason=reason)(effect)


for _how in get_args(Misbehaviour):
    _misbehaves(_how)


class Length(Document):
    """How much."""

    tokens: int = Field(default=50_000, ge=0, le=100_000)
    """Ids of text that the model would say, if it were let."""


class Before(Document):
    """How much is said before the call."""

    tokens: int = Field(default=40, ge=0, le=100_000)
    """Ids of text; so many that the request's bound falls into the call behind them."""


@kind("model-over-long", layer="model", edge="model", verdict="degrade", reason=_CUT, params=Length)
def _over_long(params: Length, reply: Reply) -> Reply:
    """The model does not come to an end before the request's bound."""
    return spoiled(reply, tokens=params.tokens, text=None)


@kind("model-cut-call", layer="model", edge="model", verdict="degrade", reason=_CUT, params=Before)
def _cut_call(params: Before, reply: Reply) -> Reply:
    """The request's bound falls into a tool call."""
    if not reply.tool_calls:
        raise CannotStrike("the reply calls no tool")
    return spoiled(reply, tokens=params.tokens, text=None)


@kind("model-no-call", layer="model", edge="model", verdict="degrade", reason=_NO_CALL)
def _no_call(params: NoParams, reply: Reply) -> Reply:
    """The model answers in words where a tool call was due."""
    if not reply.tool_calls:
        raise CannotStrike("the reply calls no tool")
    return spoiled(reply, tool_calls=(), misbehave=None)
