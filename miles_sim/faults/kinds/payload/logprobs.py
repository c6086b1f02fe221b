"""Logprobs that are not one number up to 0 a sampled id."""

import math
from random import Random
from typing import Any

from miles_sim.faults.body import ReplyBody
from miles_sim.faults.kinds.payload.edit import UNTRAINABLE, Position, payload


@payload("logprobs-missing", reason=UNTRAINABLE)
def _missing(body: ReplyBody, params: Any, random: Random) -> None:
    """The reply has no logprobs."""
    for slot in body.logprobs():
        slot.remove()


@payload("logprobs-null", reason=UNTRAINABLE)
def _null(body: ReplyBody, params: Any, random: Random) -> None:
    """The logprobs are null."""
    for slot in body.logprobs():
        slot.set(None)


@payload("logprobs-empty", reason=UNTRAINABLE)
def _empty(body: ReplyBody, params: Any, random: Random) -> None:
    """The list of logprobs is empty, and the count says that ids were sampled."""
    for slot in body.logprobs():
        slot.set([])


@payload("logprobs-short", reason=UNTRAINABLE)
def _short(body: ReplyBody, params: Any, random: Random) -> None:
    """The last id has no logprob."""
    for slot in body.logprobs():
        slot.value.pop()


@payload("logprobs-long", reason=UNTRAINABLE)
def _long(body: ReplyBody, params: Any, random: Random) -> None:
    """There is a logprob more than ids."""
    for slot in body.logprobs():
        slot.value.append(slot.value[-1])


@payload("logprobs-object", reason=UNTRAINABLE)
def _object(body: ReplyBody, params: Any, random: Random) -> None:
    """The logprobs are an object by position, not a list."""
    for slot in body.logprobs():
        slot.set({str(number): item for number, item in enumerate(slot.value)})


@payload("logprobs-bare", reason=UNTRAINABLE, params=Position)
def _bare(body: ReplyBody, params: Position, random: Random) -> None:
    """One entry is the logprob alone, without its id."""
    for item, held in zip(body.logprob_items(params.position), body.logprobs(), strict=True):
        held.value[params.position] = item.value


def _one(name: str, value: Any, statement: str) -> None:
    def edit(body: ReplyBody, params: Position, random: Random) -> None:
        for item in body.logprob_items(params.position):
            item.set(value)

    edit.__doc__ = statement
    payload(f"logprob-{name}", reason=UNTRAINABLE, params=Position)(edit)


_one("nan", math.nan, "One logprob is NaN.")
_one("infinite", -math.inf, "One logprob is minus infinity.")
_one("positive", 0.25, "One logprob is above 0: a probability of more than 1.")
_one("null", None, "One logprob is null, as that of a prompt's first id is.")
_one("string", "-0.25", "One logprob is a string.")
