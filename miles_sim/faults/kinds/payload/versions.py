"""Weight versions that are missing, of the wrong type, or others than the ids were sampled under."""

from random import Random
from typing import Any

from pydantic import Field

from miles_sim.document import Document
from miles_sim.faults.body import ReplyBody
from miles_sim.faults.kinds.payload.edit import NOT_THE_PROTOCOL, payload
from miles_sim.faults.strike import CannotStrike

_TOLD = "ids and logprobs are whole; the version is told as it came, and whoever drops what is too old reads it there"
_FIELDS = ("weight_versions",)


class Midway(Document):
    """Another version."""

    version: str = Field(default="next", min_length=1)


@payload("version-missing", verdict="tolerate", reason=_TOLD, counters=_FIELDS)
def _missing(body: ReplyBody, params: Any, random: Random) -> None:
    """The reply has no weight version."""
    for slot in body.some_versions():
        slot.remove()


@payload("version-number", reason=NOT_THE_PROTOCOL)
def _number(body: ReplyBody, params: Any, random: Random) -> None:
    """The weight version is a number."""
    body.some_versions()
    for slot in body.versions("weight_version"):
        slot.set(7)
    for slot in body.versions("weight_versions"):
        slot.set([{**span, "version": 7} for span in slot.value])


@payload("version-backwards", verdict="tolerate", reason=_TOLD, counters=_FIELDS)
def _backwards(body: ReplyBody, params: Any, random: Random) -> None:
    """The weight version is one below, as that of an engine which missed an update."""
    for slot in body.versions("weight_version"):
        if not str(slot.value).isdecimal() or int(slot.value) < 1:
            raise CannotStrike(f"weight version {slot.value!r} has none below it")
    body.some_versions()
    for slot in body.versions("weight_version"):
        slot.set(str(int(slot.value) - 1))
    for slot in body.versions("weight_versions"):
        slot.set([{**span, "version": str(int(span["version"]) - 1)} for span in slot.value])


@payload("version-midway", verdict="tolerate", reason=_TOLD, params=Midway, counters=_FIELDS)
def _midway(body: ReplyBody, params: Midway, random: Random) -> None:
    """The weight version changes in the middle of the reply; a release without spans tells the last one alone."""
    body.some_versions()
    for slot in body.versions("weight_version"):
        slot.set(params.version)
    for slot in body.versions("weight_versions"):
        spans = list(slot.value)
        if not spans or spans[-1]["end"] - spans[-1]["start"] < 2:
            raise CannotStrike("fewer than two ids were sampled under the last version")
        last = spans.pop()
        middle = (last["start"] + last["end"]) // 2
        slot.set([*spans, {**last, "end": middle}, {**last, "version": params.version, "start": middle}])
