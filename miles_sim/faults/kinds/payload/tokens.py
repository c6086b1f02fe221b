"""Sampled ids that are none."""

from random import Random
from typing import Any

from pydantic import Field

from miles_sim.document import Document
from miles_sim.faults.body import ReplyBody
from miles_sim.faults.kinds.payload.edit import Position, payload

_NO_ID = "what is no id of the vocabulary has no row in the model: training on it fails late, or reads another row"


class Foreign(Position):
    """An id that the model does not have."""

    id: int = Field(default=2_000_000_000, ge=0)
    """Far above any vocabulary; an id within it could be told from the true one by nobody."""


def _one(name: str, convert: Any, statement: str, params: type[Document] = Position) -> None:
    def edit(body: ReplyBody, params: Any, random: Random) -> None:
        for item in body.id_items(params.position):
            item.set(convert(item.value, params))

    edit.__doc__ = statement
    payload(f"id-{name}", reason=_NO_ID, params=params)(edit)


_one("string", lambda value, params: str(value), "One sampled id is a string of digits.")
_one("float", lambda value, params: float(value), "One sampled id is a float.")
_one("negative", lambda value, params: -1, "One sampled id is -1.")
_one("null", lambda value, params: None, "One sampled id is null.")
_one("foreign", lambda value, params: params.id, "One sampled id is outside the vocabulary.", Foreign)


@payload(
    "ids-contradicting",
    reason="two places of one reply tell different ids, and nobody can know which of them were sampled",
    params=Position,
    scenario="fault-payload-direct",
)
def _contradicting(body: ReplyBody, params: Position, random: Random) -> None:
    """The ids beside the logprobs are not those of the logprobs."""
    for slot in body.flat_ids():
        item = slot.value
        item[params.position] = item[params.position] + 1
