"""Faults of the agent layer: the agent fails, leaves, asks too much, or returns what it should not.

What it does to the conversation itself stands in `history`.
"""

import asyncio
import math
from collections.abc import Callable
from random import Random
from typing import Any

from pydantic import Field

from miles_sim.agent.errors import AgentCrash
from miles_sim.agent.hook import AgentGone, Body
from miles_sim.document import Document
from miles_sim.faults.agent import RETURN, CannotStrike, Deed, Doing, request_of
from miles_sim.faults.kind import NoParams, Verdict, kind

_KEPT = "what was generated until then is true and paid for: its samples are kept, and say that the agent failed"
_FOR_THE_RECORD = frozenset({"logprobs", "top_logprobs", "return_meta_info", "return_prompt_token_ids"})
"""What a driver tells the agent to ask for, and no agent reads."""


class Message(Document):
    """What the error says."""

    message: str = "the sandbox went away"


class Requests(Document):
    """How many requests more than planned."""

    requests: int = Field(default=4, ge=1, le=1023)


def _crash(params: Message) -> Callable[[], BaseException]:
    return lambda: AgentCrash(params.message)


@kind("agent-crash-before", layer="agent", edge="agent", verdict="degrade", reason=_KEPT, params=Message)
def _crash_before(params: Message, doing: Doing, random: Random) -> Deed:
    """The agent raises in place of asking."""
    return Deed(before=_crash(params))


@kind("agent-crash-after", layer="agent", edge="agent", verdict="degrade", reason=_KEPT, params=Message)
def _crash_after(params: Message, doing: Doing, random: Random) -> Deed:
    """The agent raises when its request is answered."""
    return Deed(after=_crash(params))


@kind("agent-crash-at-end", layer="agent", edge="agent", at=RETURN, verdict="degrade", reason=_KEPT, params=Message)
def _crash_at_end(params: Message, doing: Doing, random: Random) -> Deed:
    """The agent raises when all is done, in place of returning."""
    return Deed(before=_crash(params))


@kind(
    "agent-cancels",
    layer="agent",
    edge="agent",
    verdict="degrade",
    reason="who awaits a task of its own that was cancelled raises `CancelledError`, though nobody ended the rollout",
)
def _cancels(params: NoParams, doing: Doing, random: Random) -> Deed:
    """The agent raises `asyncio.CancelledError` when its request is answered."""
    return Deed(after=asyncio.CancelledError)


@kind(
    "agent-abandons",
    layer="agent",
    edge="agent",
    verdict="tolerate",
    reason="an agent may end when it likes; what it asked is answered, and nobody knows that more was planned",
)
def _abandons(params: NoParams, doing: Doing, random: Random) -> Deed:
    """The agent returns before its plan is done."""
    return Deed(before=AgentGone)


def _drawn_again(number: int) -> Callable[[Body], Body]:
    return lambda body: {**body, "seed": (body.get("seed") or 0) + number}


def _worded(number: int) -> Callable[[Body], Body]:
    def change(body: Body) -> Body:
        *history, last = body["messages"]
        return {**body, "messages": [*history, {**last, "content": f"({number}) {last['content']}"}]}

    return change


@kind(
    "agent-floods",
    layer="agent",
    edge="agent",
    verdict="tolerate",
    reason="each reply that was sent is recorded; a linear session serves one at a time, and refuses the others",
    params=Requests,
    under={"v1": "degrade"},
)
def _floods(params: Requests, doing: Doing, random: Random) -> Deed:
    """The agent asks many times at once, each time for another draw."""
    request_of(doing)
    return Deed(beside=[_drawn_again(number) for number in range(1, params.requests + 1)])


@kind(
    "agent-asks-twice",
    layer="agent",
    edge="agent",
    verdict="tolerate",
    reason="two equal requests at one time are twins, none of them asked again; a linear session refuses the second",
)
def _asks_twice(params: NoParams, doing: Doing, random: Random) -> Deed:
    """The agent makes the very same request twice at the same time."""
    request_of(doing)
    return Deed(beside=[lambda body: body])


@kind(
    "agent-past-node-cap",
    layer="agent",
    edge="agent",
    verdict="degrade",
    reason="who asks for more than a session may hold is refused by name; what it holds is kept",
    params=Requests,
)
def _past_node_cap(params: Requests, doing: Doing, random: Random) -> Deed:
    """The agent asks other things, one after the other, until the session is full."""
    request_of(doing)
    return Deed(earlier=[_worded(number) for number in range(1, params.requests + 1)])


@kind(
    "agent-asks-after-collect",
    layer="agent",
    edge="agent",
    verdict="tolerate",
    reason="samples are made of what was there when they were collected; what comes later changes none of them",
    copies=2,
)
def _asks_after_collect(params: NoParams, doing: Doing, random: Random) -> Deed:
    """A part of the agent lives on: it asks again when its samples have been collected."""
    request_of(doing)
    return Deed(later="collect")


@kind(
    "agent-asks-after-delete",
    layer="agent",
    edge="agent",
    verdict="tolerate",
    reason="the session is gone: the request is refused, opens none, and changes no sample",
    copies=2,
)
def _asks_after_delete(params: NoParams, doing: Doing, random: Random) -> Deed:
    """A part of the agent lives on: it asks again when its session has been deleted."""
    request_of(doing)
    return Deed(later="delete")


@kind(
    "agent-drops-logprobs",
    layer="agent",
    edge="agent",
    verdict="tolerate",
    reason="a client of anyone's asks for none: who records needs them, and asks the engine itself",
)
def _drops_logprobs(params: NoParams, doing: Doing, random: Random) -> Deed:
    """The client asks for no logprobs and no ids from here on, whatever the driver told it to ask for."""
    request_of(doing)
    return Deed(omitted=_FOR_THE_RECORD)


def _returns(name: str, statement: str, change: Callable[[Any], Any], *, verdict: Verdict, reason: str) -> None:
    def effect(params: NoParams, doing: Doing, random: Random) -> Deed:
        if doing.step != RETURN:
            raise CannotStrike(f"step {doing.step!r} returns nothing")
        return Deed(returns=change)

    effect.__doc__ = statement
    kind(
        f"agent-returns-{name}",
        layer="agent",
        edge="agent",
        at=RETURN,
        verdict=verdict,
        reason=reason,
        takes_all=verdict == "reject",
    )(effect)


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


_NO_JSON = "what JSON cannot carry would arrive as something else; the error names the place"

_returns(
    "reserved",
    "The agent returns metadata under the names that samples' own metadata has.",
    lambda value: {**(value or {}), "leaf": "mine", "lifecycle": [], "agent_error": {"type": "None"}},
    verdict="tolerate",
    reason="those names are the session's: what the agent puts under them is left out, the rest is kept",
)
_returns(
    "unserialisable",
    "The agent returns metadata that holds an object.",
    lambda value: {**(value or {}), "sandbox": object()},
    verdict="reject",
    reason=_NO_JSON,
)
_returns(
    "nan",
    "The agent returns a reward that is no number.",
    lambda value: {**(value or {}), "reward": math.nan},
    verdict="reject",
    reason=_NO_JSON,
)
_returns(
    "number-keys",
    "The agent returns metadata whose keys are numbers.",
    lambda value: {**(value or {}), "scores": {1: 0.5}},
    verdict="reject",
    reason=_NO_JSON,
)
_returns(
    "nested",
    "The agent returns metadata nested deeper than any reader follows.",
    lambda value: {**(value or {}), "trace": _nested(250)},
    verdict="reject",
    reason=_NO_JSON,
)
_returns(
    "list",
    "The agent returns a list where a mapping or nothing is due.",
    lambda value: [value],
    verdict="reject",
    reason="the error names the type; a guess at what was meant would label samples wrongly",
)
