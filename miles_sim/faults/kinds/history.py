"""Faults of the agent layer: the ways in which clients spoil the conversation that they send back.

A tree session opens a branch where a history is another one; a linear session, which has one history, refuses it. From
then on the agent goes on from what it made of the conversation, as such a client does.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Literal

from miles_sim.agent.conversation import Message
from miles_sim.document import Document
from miles_sim.faults.agent import Deed, Doing, earlier_messages, request_of
from miles_sim.faults.kind import NoParams, Verdict, kind
from miles_sim.faults.strike import CannotStrike

Change = Callable[[Any, list[Message], Random], list[Message]]
"""(params, history, random) -> history; the step's own messages are not among them."""

_BRANCH = "the history is another one: what was generated stands as it was said, and the request opens a branch"
_BEHIND = "the history still begins with what was generated; what stands behind it is the client's, and not trained on"
_TWIN_OF_V1: dict[str, Verdict] = {"v1": "reject"}


class Role(Document):
    """Whose message; of several one that is drawn."""

    role: Literal["user", "assistant", "tool", "system"] = "user"


class Spelling(Document):
    """How the arguments of earlier tool calls are spelled: `compact` and `spaced` JSON, or as an `object`."""

    form: Literal["compact", "spaced", "object"] = "compact"


def _edit(
    name: str, *, reason: str = _BRANCH, params: type[Document] = NoParams, linear: Verdict | None = "reject"
) -> Callable[[Change], Change]:
    """Enters a change of the history; `linear`: the verdict under v1, where it is not to tolerate."""

    def enter(change: Change) -> Change:
        def effect(params: Any, doing: Doing, random: Random) -> Deed:
            history = list(earlier_messages(doing))
            edited = change(params, history, random)
            if edited == history:
                raise CannotStrike(f"step {doing.step!r}: the history has nothing of the kind")
            return Deed(messages=[*edited, *doing.messages[len(history) :]])

        effect.__doc__ = change.__doc__
        under: dict[str, Verdict] = {} if linear is None else {"v1": linear}
        kind(
            f"agent-{name}", layer="agent", edge="agent", verdict="tolerate", reason=reason, params=params, under=under
        )(effect)
        return change

    return enter


def _chosen(history: Sequence[Message], random: Random, role: str | None = None) -> int:
    """Place of a message of that role, or of any but the system's."""
    fitting = [
        n for n, message in enumerate(history) if (message["role"] == role if role else message["role"] != "system")
    ]
    if not fitting:
        raise CannotStrike(f"the history has no {role or 'other'} message")
    return random.choice(fitting)


def _each_call(history: Sequence[Message], change: Callable[[Any], Any]) -> list[Message]:
    """The history with the arguments of all tool calls changed; those that are no JSON object stay."""
    return [
        message
        if not message.get("tool_calls")
        else {**message, "tool_calls": list(_calls(message["tool_calls"], change))}
        for message in history
    ]


def _calls(calls: Sequence[Any], change: Callable[[Any], Any]) -> Iterator[Any]:
    for call in calls:
        try:
            arguments = json.loads(call["function"]["arguments"])
        except (ValueError, TypeError, LookupError):
            yield call
            continue
        fits = isinstance(arguments, dict)
        yield {**call, "function": {**call["function"], "arguments": change(arguments)}} if fits else call


@_edit("strips-reasoning")
def _strips_reasoning(params: NoParams, history: list[Message], random: Random) -> list[Message]:
    """The client sends its replies back without `reasoning_content`."""
    return [{name: value for name, value in message.items() if name != "reasoning_content"} for message in history]


@_edit("reorders-arguments")
def _reorders(params: NoParams, history: list[Message], random: Random) -> list[Message]:
    """The client sends tool calls back with the keys of their arguments in another order."""
    return _each_call(history, lambda arguments: json.dumps(dict(reversed(arguments.items()))))


@_edit("respells-arguments", params=Spelling)
def _respells(params: Spelling, history: list[Message], random: Random) -> list[Message]:
    """The client parses the arguments of tool calls and spells them its own way."""
    if params.form == "object":
        return _each_call(history, lambda arguments: arguments)
    separators = (",", ":") if params.form == "compact" else (" , ", " : ")
    return _each_call(history, lambda arguments: json.dumps(arguments, separators=separators))


@_edit("trims")
def _trims(params: NoParams, history: list[Message], random: Random) -> list[Message]:
    """The client strips white space off the replies that it sends back."""
    return [
        {**message, "content": message["content"].strip()} if isinstance(message.get("content"), str) else message
        for message in history
    ]


@_edit("pads")
def _pads(params: NoParams, history: list[Message], random: Random) -> list[Message]:
    """The client sends one message back with white space behind it."""
    place = _chosen(history, random)
    padded = {**history[place], "content": f"{history[place].get('content') or ''} \n"}
    return [*history[:place], padded, *history[place + 1 :]]


@_edit("edits-message", params=Role)
def _edits(params: Role, history: list[Message], random: Random) -> list[Message]:
    """The client changes the words of an earlier message."""
    place = _chosen(history, random, params.role)
    edited = {**history[place], "content": f"(edited) {history[place].get('content') or ''}"}
    return [*history[:place], edited, *history[place + 1 :]]


@_edit("drops-message", params=Role)
def _drops(params: Role, history: list[Message], random: Random) -> list[Message]:
    """The client leaves an earlier message out."""
    place = _chosen(history, random, params.role)
    return [*history[:place], *history[place + 1 :]]


@_edit("duplicates-message", params=Role)
def _duplicates(params: Role, history: list[Message], random: Random) -> list[Message]:
    """The client sends an earlier message twice."""
    place = _chosen(history, random, params.role)
    return [*history[: place + 1], dict(history[place]), *history[place + 1 :]]


@_edit("swaps-messages")
def _swaps(params: NoParams, history: list[Message], random: Random) -> list[Message]:
    """The client sends two neighbouring messages in the wrong order."""
    fitting = [n for n in range(1, len(history)) if "system" not in (history[n - 1]["role"], history[n]["role"])]
    if not fitting:
        raise CannotStrike("the history has no two messages to swap")
    place = random.choice(fitting)
    return [*history[: place - 1], history[place], history[place - 1], *history[place + 1 :]]


@_edit("adds-system", reason=_BEHIND, linear=None)
def _adds_system(params: NoParams, history: list[Message], random: Random) -> list[Message]:
    """The client puts a further system message before what it asks."""
    return [*history, {"role": "system", "content": "Be brief."}]


@_edit("replaces-system")
def _replaces_system(params: NoParams, history: list[Message], random: Random) -> list[Message]:
    """The client writes the system message anew, or puts one where there was none."""
    rest = history[1:] if history[0]["role"] == "system" else history
    return [{"role": "system", "content": "The date has changed."}, *rest]


@_edit("adds-empty", reason=_BEHIND, linear=None)
def _adds_empty(params: NoParams, history: list[Message], random: Random) -> list[Message]:
    """The client sends an empty user message before what it asks."""
    return [*history, {"role": "user", "content": ""}]


@kind(
    "agent-drops-tools",
    layer="agent",
    edge="agent",
    verdict="tolerate",
    reason="the tools stand in the prompt: a request without them is another conversation",
    under=_TWIN_OF_V1,
)
def _drops_tools(params: NoParams, doing: Doing, random: Random) -> Deed:
    """The client leaves the list of tools out from here on."""
    earlier_messages(doing)
    if not (doing.options or {}).get("tools"):
        raise CannotStrike(f"step {doing.step!r} has no tools to leave out")
    return Deed(omitted=frozenset({"tools"}))


def _results(doing: Doing) -> list[Message]:
    """The tool results that a step is about to send."""
    own = list(request_of(doing)[len(doing.messages) - doing.own :])
    if any(message["role"] != "tool" for message in own):
        raise CannotStrike(f"step {doing.step!r} answers no tool call")
    return own


@kind("agent-leaves-call", layer="agent", edge="agent", verdict="tolerate", reason=_BEHIND)
def _leaves_call(params: NoParams, doing: Doing, random: Random) -> Deed:
    """The client answers a tool call with a user message, and with no result."""
    own = _results(doing)
    history = doing.messages[: len(doing.messages) - len(own)]
    return Deed(messages=[*history, {"role": "user", "content": own[-1]["content"]}])


@kind("agent-wrong-call-id", layer="agent", edge="agent", verdict="tolerate", reason=_BEHIND)
def _wrong_call_id(params: NoParams, doing: Doing, random: Random) -> Deed:
    """The client answers a tool call under an id that no call has."""
    own = _results(doing)
    history = doing.messages[: len(doing.messages) - len(own)]
    return Deed(messages=[*history, *({**message, "tool_call_id": "call_of_nobody"} for message in own)])
