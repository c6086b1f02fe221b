"""Messages and texts that are not what the ids say, or no messages."""

from random import Random
from typing import Any

from pydantic import Field

from miles_sim.document import Document
from miles_sim.faults.body import ReplyBody
from miles_sim.faults.kinds.payload.edit import NOT_THE_PROTOCOL, payload
from miles_sim.faults.strike import CannotStrike

_NO_MESSAGE = "without the assistant's message the conversation cannot go on, nor a later request be matched with it"


class Content(Document):
    """Another text."""

    content: str = Field(default="All tests pass.", min_length=1)


@payload("message-missing", reason=_NO_MESSAGE)
def _missing(body: ReplyBody, params: Any, random: Random) -> None:
    """The choice has no message."""
    for slot in body.messages():
        slot.remove()


@payload("message-null", reason=_NO_MESSAGE)
def _null(body: ReplyBody, params: Any, random: Random) -> None:
    """The message is null."""
    for slot in body.messages():
        slot.set(None)


@payload("message-role", reason=NOT_THE_PROTOCOL)
def _role(body: ReplyBody, params: Any, random: Random) -> None:
    """The message is a user's."""
    for slot in body.messages():
        slot.value["role"] = "user"


@payload("message-content-null", reason=_NO_MESSAGE)
def _content_null(body: ReplyBody, params: Any, random: Random) -> None:
    """The content is null, and there is no tool call beside it."""
    for slot in body.messages():
        if slot.value.get("tool_calls"):
            raise CannotStrike("the message has tool calls, beside which null is how some releases spell no text")
        slot.value["content"] = None


@payload("message-content-number", reason=NOT_THE_PROTOCOL)
def _content_number(body: ReplyBody, params: Any, random: Random) -> None:
    """The content is a number."""
    for slot in body.messages():
        slot.value["content"] = 42


@payload(
    "content-foreign",
    verdict="tolerate",
    reason="ids and logprobs are as they were sampled, and these are trained on; the agent goes on from what it saw",
    params=Content,
)
def _content_foreign(body: ReplyBody, params: Content, random: Random) -> None:
    """The message is not what the ids say."""
    for slot in body.messages():
        slot.value["content"] = params.content


@payload(
    "text-foreign",
    verdict="tolerate",
    reason="text follows from the ids, which were sampled; what is said beside them is not read",
    params=Content,
    scenario="fault-payload-direct",
)
def _text_foreign(body: ReplyBody, params: Content, random: Random) -> None:
    """The text of `/generate`, or of a completion, is not what the ids say."""
    found = [entry for entry in body.entries() if "text" in entry]
    if not found:
        raise CannotStrike(f"the {body.kind} reply has no text")
    for entry in found:
        entry["text"] = params.content


@payload(
    "tool-arguments-object",
    verdict="tolerate",
    reason="the agent is handed what came, and the history it replays is known again; the ids are as sampled",
)
def _arguments_object(body: ReplyBody, params: Any, random: Random) -> None:
    """The arguments of a tool call are an object, not a string of JSON."""
    for slot in body.tool_calls():
        for call in slot.value:
            call["function"]["arguments"] = {"spelled": call["function"]["arguments"]}


@payload("tool-calls-null", reason=NOT_THE_PROTOCOL)
def _calls_null(body: ReplyBody, params: Any, random: Random) -> None:
    """The list of tool calls holds a null."""
    for slot in body.messages():
        slot.value["tool_calls"] = [None]


@payload("tool-calls-object", reason=NOT_THE_PROTOCOL)
def _calls_object(body: ReplyBody, params: Any, random: Random) -> None:
    """The tool calls are an object, not a list."""
    for slot in body.tool_calls():
        slot.set({"0": slot.value[0]})
