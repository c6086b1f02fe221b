"""Choices, finish reasons, response ids and `meta_info` that are not as they should be."""

import copy
from random import Random
from typing import Any

from miles_sim.faults.body import ReplyBody, read_reply, spoiled
from miles_sim.faults.kind import kind
from miles_sim.faults.kinds.payload.edit import NOT_THE_PROTOCOL, payload
from miles_sim.faults.strike import Answer, Strike

_NOT_ONE = "one reply was asked for: with none there is nothing to record, and of two the second would be lost"
_STATUS = "a sample's status follows from the finish reason; what is unknown must not pass as complete"
_NAMELESS = "the response id is what ties a generation to its record"


@payload("choices-missing", reason=_NOT_ONE)
def _choices_missing(body: ReplyBody, params: Any, random: Random) -> None:
    """There are no choices at all; of `/generate` the object is empty."""
    if body.kind == "generate":
        body.document = {}
    else:
        del body.document["choices"]


@payload("choices-empty", reason=_NOT_ONE)
def _choices_empty(body: ReplyBody, params: Any, random: Random) -> None:
    """The list of choices is empty; of `/generate` that of generations."""
    if body.kind == "generate":
        body.document = []
    else:
        body.document["choices"] = []


@payload("choices-two", reason=_NOT_ONE)
def _choices_two(body: ReplyBody, params: Any, random: Random) -> None:
    """There are two choices, where one was asked for; of `/generate` two generations."""
    both = [*body.entries(), copy.deepcopy(body.entries()[0])]
    if body.kind == "generate":
        body.document = both
    else:
        both[-1]["index"] = len(both) - 1
        body.document["choices"] = both


@payload("choices-null", reason=_NOT_ONE)
def _choices_null(body: ReplyBody, params: Any, random: Random) -> None:
    """The one choice is null; of `/generate` the body is."""
    if body.kind == "generate":
        body.document = None
    else:
        body.document["choices"] = [None]


def _finish(name: str, statement: str, value: Any, generate: Any) -> None:
    def edit(body: ReplyBody, params: Any, random: Random) -> None:
        for slot in body.finish_reasons():
            slot.set(generate if body.kind == "generate" else value)

    edit.__doc__ = statement
    payload(f"finish-{name}", reason=_STATUS)(edit)


_finish("unknown", "The finish reason is one that the engine does not have.", "paused", {"type": "paused"})
_finish("null", "The finish reason is null, as in a stream that goes on.", None, None)
_finish(
    "object",
    "The finish reason is an object where a string is due; of `/generate` the other way round.",
    {"type": "stop", "matched": None},
    "stop",
)


@payload("finish-missing", reason=_STATUS)
def _finish_missing(body: ReplyBody, params: Any, random: Random) -> None:
    """There is no finish reason."""
    for slot in body.finish_reasons():
        slot.remove()


@payload("response-id-missing", reason=_NAMELESS)
def _id_missing(body: ReplyBody, params: Any, random: Random) -> None:
    """The reply has no id."""
    for slot in body.response_ids():
        slot.remove()


@payload("response-id-empty", reason=_NAMELESS)
def _id_empty(body: ReplyBody, params: Any, random: Random) -> None:
    """The id of the reply is the empty string."""
    for slot in body.response_ids():
        slot.set("")


@payload("response-id-number", reason=_NAMELESS)
def _id_number(body: ReplyBody, params: Any, random: Random) -> None:
    """The id of the reply is a number."""
    for slot in body.response_ids():
        slot.set(7)


@kind(
    "payload-response-id-duplicate",
    layer="payload",
    edge="engine",
    verdict="reject",
    reason="one id for two generations of a rollout: a cache or a router answers from an earlier request, and whoever "
    "looks a generation up finds the other one",
    scenario="fault-payload-shape",
)
def _id_duplicate(params: Any, random: Random) -> Strike:
    """The id is that of the rollout's first reply."""

    def against(earlier: Answer, answer: Answer) -> Answer:
        first = read_reply(earlier).response_ids()[0].value

        def edit(body: ReplyBody) -> None:
            for slot in body.response_ids():
                slot.set(first)

        return spoiled(answer, edit)

    return Strike(against=against)


@payload("meta-missing", reason=NOT_THE_PROTOCOL)
def _meta_missing(body: ReplyBody, params: Any, random: Random) -> None:
    """There is no `meta_info`, as before a router that drops what it does not know."""
    body.metas()
    for entry in body.entries():
        del entry["meta_info"]


@payload("meta-null", reason=NOT_THE_PROTOCOL)
def _meta_null(body: ReplyBody, params: Any, random: Random) -> None:
    """`meta_info` is null."""
    body.metas()
    for entry in body.entries():
        entry["meta_info"] = None


@payload("meta-list", reason=NOT_THE_PROTOCOL)
def _meta_list(body: ReplyBody, params: Any, random: Random) -> None:
    """`meta_info` is a list."""
    for entry, meta in zip(body.entries(), body.metas(), strict=True):
        entry["meta_info"] = [meta]
