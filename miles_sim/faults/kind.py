"""A kind of fault: its name, where it strikes, what it does, and what the code under contract must make of it."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from miles_sim.document import Document
from miles_sim.faults.place import Edge

Layer = Literal["transport", "http", "payload", "model", "engine", "agent", "session", "consumer"]
Verdict = Literal["tolerate", "reject", "degrade"]
"""What must become of a rollout that is struck, its agent not asking again.

`tolerate`: every step is answered and kept, and its samples equal those without the fault but for the kind's
`counters`. `reject`: what was struck is in no sample, and an error names it: the agent's request fails, or the rollout
does. `degrade`: the samples hold less, all of it true, and say so: aborted, truncated, marked, or dropped by name.
"""


class NoParams(Document):
    """A kind without parameters."""


@dataclass(frozen=True)
class Kind:
    """One entry of the catalogue."""

    name: str
    layer: Layer
    edge: Edge
    statement: str
    """What happens, in one line."""
    verdict: Verdict
    reason: str
    """Why that verdict."""
    params: type[Document]
    counters: frozenset[str]
    """Fields of a sample, or of a metric, that may differ from the play without the fault."""
    radius: Literal["rollout", "engine"]
    """Who may notice: the rollout that is struck, or all that share its engine (in `counters` alone)."""
    scenario: str
    """A scenario of the library that shows it."""
    under: Mapping[str, Verdict]
    """Session version to the verdict where it is another one."""
    copies: int
    """How often the request that it strikes is delivered, one after the other or at once; who asked is given the last
    answer, or, where the agent asks again when all is over, the first. What else strikes there on its way further down
    may so strike a copy whose answer nobody waits for."""
    takes_all: bool
    """All that the rollout made may be lost with it, which is then told. False: what stands recorded is kept."""
    at: str | None
    """The one place it concerns: `open`, `collect`, `delete` on the driver's edge, `return` on the agent's. None: any,
    on the agent's edge every step that asks."""
    effect: Callable[..., Any]
    """By edge: `(params, random) -> Strike` on `engine`, `session` and `driver`; `(params, Reply) -> Reply` on `model`;
    on `agent` see `miles_sim.faults.agent`. `random`: a `random.Random` of the place's own."""

    def fits(self, step: str) -> bool:
        """It can strike at a step of its edge."""
        return step == self.at or (self.at is None and (self.edge != "agent" or step != "return"))

    def verdict_under(self, session: str) -> Verdict:
        """The verdict under that session version."""
        return self.under.get(session, self.verdict)


_KINDS: dict[str, Kind] = {}
_COPIED = frozenset({"agent", "session", "driver"})
"""Edges on which a request may be delivered more than once."""


def kind(
    name: str,
    *,
    layer: Layer,
    edge: Edge,
    verdict: Verdict,
    reason: str,
    params: type[Document] = NoParams,
    counters: tuple[str, ...] = (),
    radius: Literal["rollout", "engine"] = "rollout",
    scenario: str | None = None,
    under: Mapping[str, Verdict] | None = None,
    copies: int = 1,
    takes_all: bool = False,
    at: str | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter an effect into the catalogue; its docstring is the statement. `scenario`: default `fault-{name}`."""

    def enter(effect: Callable[..., Any]) -> Callable[..., Any]:
        statement = " ".join((inspect.getdoc(effect) or "").split())
        if not statement:
            raise ValueError(f"kind {name!r}: the effect has no docstring, which is its statement")
        if copies < 1 or (copies > 1 and edge not in _COPIED):
            raise ValueError(f"kind {name!r}: copies: {copies} is not 1, or more on {' or '.join(sorted(_COPIED))}")
        if takes_all and verdict == "tolerate":
            raise ValueError(f"kind {name!r}: takes_all: what must be tolerated takes nothing")
        if name in _KINDS:
            raise ValueError(f"kind {name!r}: stands twice")
        _KINDS[name] = Kind(
            name=name,
            layer=layer,
            edge=edge,
            statement=statement,
            verdict=verdict,
            reason=reason,
            params=params,
            counters=frozenset(counters),
            radius=radius,
            scenario=scenario or f"fault-{name}",
            under=dict(under or {}),
            copies=copies,
            takes_all=takes_all,
            at=at,
            effect=effect,
        )
        return effect

    return enter


def entered() -> dict[str, Kind]:
    """All kinds entered so far, by name; `catalogue.kinds()` loads them all first."""
    return _KINDS
