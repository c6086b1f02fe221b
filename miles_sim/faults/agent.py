"""Faults on the agent's edge: an effect gets what the agent is about to do and says what it does instead.

An effect is `(params, Doing, random) -> Deed`. It raises `CannotStrike` where there is nothing to spoil: a step that
asks again, a history without tool calls, the end of the plan for what concerns a request.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from miles_sim.agent.conversation import Message
from miles_sim.agent.hook import PLANNED, RETURN, Deed, Doing
from miles_sim.document import Document
from miles_sim.faults.kind import Kind
from miles_sim.faults.strike import CannotStrike

__all__ = ["RETURN", "AgentFaults", "CannotStrike", "Deed", "Doing", "Struck", "earlier_messages", "request_of"]


@dataclass(frozen=True)
class Struck:
    """A fault of the plan that is due at a step."""

    fault: int
    """Position in the scenario's faults."""
    kind: Kind
    params: Document
    random: random.Random


class AgentFaults:
    """The hook of one rollout's player.

    `due`: the faults on the agent's edge that strike at a step, by its key or `RETURN`. `told`: called for each of
    them with the step and None, or why it could not strike.
    """

    def __init__(self, due: Callable[[str], Sequence[Struck]], told: Callable[[Struck, str, str | None], None]) -> None:
        self._due = due
        self._told = told
        self._later: dict[str, list[Callable[[], Awaitable[None]]]] = {}

    def does(self, doing: Doing) -> Deed:
        """What all the faults that are due make of it, one after the other."""
        whole = PLANNED
        for struck in self._due(doing.step):
            try:
                deed = struck.kind.effect(struck.params, doing, struck.random)
            except CannotStrike as error:
                self._told(struck, doing.step, str(error))
                continue
            self._told(struck, doing.step, None)
            whole = joined(whole, deed)
            if deed.messages is not None:
                doing = replace(doing, messages=tuple(deed.messages))
        return whole

    def later(self, moment: str, ask: Callable[[], Awaitable[None]]) -> None:
        """Keep `ask` until the driver's request of that name has been answered."""
        self._later.setdefault(moment, []).append(ask)

    async def after(self, moment: str) -> None:
        """The driver's request of that name has been answered, and nobody was told of it yet."""
        for ask in self._later.pop(moment, []):
            await ask()


def joined(one: Deed, other: Deed) -> Deed:
    """Both; where they exclude each other, the first."""
    return Deed(
        messages=one.messages if other.messages is None else other.messages,
        omitted=one.omitted | other.omitted,
        earlier=(*one.earlier, *other.earlier),
        beside=(*one.beside, *other.beside),
        before=one.before or other.before,
        after=one.after or other.after,
        later=one.later or other.later,
        returns=one.returns or other.returns,
    )


def request_of(doing: Doing) -> Sequence[Message]:
    """Messages of the request that a step is about to make for the first time; `CannotStrike` where there is none."""
    if doing.step == RETURN:
        raise CannotStrike("the plan is at its end, and asks nothing")
    if not doing.own:
        raise CannotStrike(f"step {doing.step!r} asks again, word for word")
    return doing.messages


def earlier_messages(doing: Doing) -> Sequence[Message]:
    """Those that were sent before; `CannotStrike` where there is none but the system's."""
    history = request_of(doing)[: len(doing.messages) - doing.own]
    if not any(message["role"] != "system" for message in history):
        raise CannotStrike(f"step {doing.step!r} has no history")
    return history
