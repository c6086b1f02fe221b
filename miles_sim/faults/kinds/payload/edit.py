"""Entering a payload kind: an edit of the reply's document becomes the effect of a kind."""

import inspect
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from pydantic import Field

from miles_sim.document import Document
from miles_sim.faults.body import ReplyBody, spoiled
from miles_sim.faults.kind import NoParams, Verdict, kind
from miles_sim.faults.strike import Strike

Edit = Callable[[ReplyBody, Any, Random], None]

UNTRAINABLE = "ids without their logprobs, one for one and each a number up to 0, cannot be trained on"
NOT_THE_PROTOCOL = "what is read there must be what SGLang writes there; anything else is another server's, or a bug"


class Position(Document):
    """One of the sampled ids."""

    position: int = Field(default=0, ge=-(2**31), lt=2**31)
    """Counted from 0; negative: from the end."""


def payload(
    name: str,
    *,
    reason: str,
    verdict: Verdict = "reject",
    params: type[Document] = NoParams,
    counters: tuple[str, ...] = (),
    under: Mapping[str, Verdict] | None = None,
    scenario: str | None = None,
) -> Callable[[Edit], Edit]:
    """Enter `payload-{name}`; the edit's docstring is the statement. The edit may raise `CannotStrike`.

    `scenario`: default `fault-payload-{module}` of the edit's module.
    """

    def enter(edit: Edit) -> Edit:
        def effect(params: Document, random: Random) -> Strike:
            return Strike(reply=lambda answer: spoiled(answer, lambda body: edit(body, params, random)))

        effect.__doc__ = inspect.getdoc(edit)
        kind(
            f"payload-{name}",
            layer="payload",
            edge="engine",
            verdict=verdict,
            reason=reason,
            params=params,
            counters=counters,
            under=under or {},
            scenario=scenario or f"fault-payload-{edit.__module__.rpartition('.')[2]}",
        )(effect)
        return edit

    return enter
