"""Rows of routed experts that do not belong to the ids."""

import base64
import binascii
from collections.abc import Callable
from random import Random
from typing import Any

from miles_sim.faults.body import ReplyBody
from miles_sim.faults.kinds.payload.edit import payload
from miles_sim.faults.strike import CannotStrike

_ROWS = "there is one row a transition: with any other number each id would be replayed with another one's experts"


def _row_bytes(body: ReplyBody, text: str) -> tuple[bytes, int]:
    """The rows, and how many bytes one has."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CannotStrike(f"the rows are no base64: {error}") from None
    meta = body.metas()[0]
    try:
        count = meta["prompt_tokens"] + meta["completion_tokens"] - 1
    except (KeyError, TypeError):
        raise CannotStrike("the reply does not say how many rows there are") from None
    if count < 1 or len(raw) % count:
        raise CannotStrike(f"{len(raw)} bytes are no {count} rows")
    return raw, len(raw) // count


def _each(name: str, statement: str, alter: Callable[[bytes, int], bytes]) -> None:
    def edit(body: ReplyBody, params: Any, random: Random) -> None:
        for slot in body.replay("routed_experts"):
            slot.set(base64.b64encode(alter(*_row_bytes(body, slot.value))).decode())

    edit.__doc__ = statement
    payload(f"rows-{name}", reason=_ROWS)(edit)


_each("short", "One row of routed experts is missing.", lambda raw, row: raw[:-row])
_each("long", "There is a row of routed experts too many.", lambda raw, row: raw + raw[-row:])
_each("cut", "The last row of routed experts ends within a number.", lambda raw, row: raw[:-1])


@payload("rows-base64", reason=_ROWS)
def _base64(body: ReplyBody, params: Any, random: Random) -> None:
    """The rows of routed experts are no base64."""
    for slot in body.replay("routed_experts"):
        slot.set("*" + slot.value[1:])


@payload("rows-list", reason=_ROWS)
def _list(body: ReplyBody, params: Any, random: Random) -> None:
    """The rows of routed experts are a list of numbers, not a string."""
    for slot in body.replay("routed_experts"):
        slot.set([0, 1, 2, 3])


@payload("rows-missing", reason=_ROWS)
def _missing(body: ReplyBody, params: Any, random: Random) -> None:
    """The reply has no rows of routed experts, though they were asked for."""
    for slot in body.replay("routed_experts"):
        slot.remove()
