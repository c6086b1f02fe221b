"""Shrinking: the smallest scenario, and the smallest plan of faults, that still fails."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from miles_sim.agent.plan import Plan, branches, keyed
from miles_sim.agent.steps import Parallel, Step, Subagent
from miles_sim.document import Document
from miles_sim.engine.settings import EngineSettings
from miles_sim.faults.plan import Fault
from miles_sim.reply import Reply
from miles_sim.scenarios.model import Scenario

Fails = Callable[[Scenario], bool]


@dataclass(frozen=True)
class Shrunk:
    """What is left, and how many plays it took."""

    scenario: Scenario
    plays: int
    complete: bool
    """Nothing more can be left out by itself; else the plays allowed ran out first."""


def shrink(scenario: Scenario, fails: Fails, *, plays: int = 100) -> Shrunk:
    """Leave out faults, rollouts, steps, settings, as long as `fails` says that it still fails; at most `plays` plays.

    A pure function of its arguments, if `fails` is one. `fails(scenario)` itself is taken for granted.
    """
    shrinker = _Shrinker(fails, plays)
    current = _named_steps(scenario)
    while not shrinker.spent:
        smaller = shrinker.pass_over(current)
        if smaller is current:
            return Shrunk(current, shrinker.plays, complete=True)
        current = smaller
    return Shrunk(current, shrinker.plays, complete=False)


class _Shrinker:
    def __init__(self, fails: Fails, limit: int) -> None:
        self._fails = fails
        self._limit = limit
        self.plays = 0

    @property
    def spent(self) -> bool:
        return self.plays >= self._limit

    def pass_over(self, scenario: Scenario) -> Scenario:
        """One round of all ways to make it smaller; the very same object where none helps."""
        scenario = self._as_often_as_it_helps(scenario, _fewer_rollouts)  # first: what is left plays faster
        scenario = self._without_some(scenario)
        for smaller in (_fewer_steps, _plainer):
            scenario = self._as_often_as_it_helps(scenario, smaller)
        return scenario

    def _without_some(self, scenario: Scenario) -> Scenario:
        """Without faults: halves of them first, then quarters, and so on to single ones (delta debugging)."""
        size = max(1, len(scenario.faults) // 2)
        while size and not self.spent:
            at = 0
            while at < len(scenario.faults):
                fewer = self._tried(scenario, {"faults": scenario.faults[:at] + scenario.faults[at + size :]})
                scenario, at = (scenario, at + size) if fewer is None else (fewer, at)
            size //= 2
        return scenario

    def _as_often_as_it_helps(
        self, scenario: Scenario, smaller: Callable[[Scenario], Iterator[dict[str, Any]]]
    ) -> Scenario:
        found = True
        while found:
            found = False
            for change in smaller(scenario):
                fewer = self._tried(scenario, change)
                if fewer is not None:
                    scenario, found = fewer, True
                    break
        return scenario

    def _tried(self, scenario: Scenario, change: dict[str, Any]) -> Scenario | None:
        """The changed scenario where it is one, and still fails."""
        if self.spent:
            return None
        try:
            changed = Scenario.model_validate({**dict(scenario), **change})
        except ValueError:
            return None
        self.plays += 1
        return changed if self._fails(changed) else None


def _fewer_rollouts(scenario: Scenario) -> Iterator[dict[str, Any]]:
    """One rollout alone; then all but one. Faults that are bound to a rollout go with it."""
    numbers = range(len(scenario.rollouts))
    if len(numbers) == 1:
        return
    for kept in [[one] for one in numbers] + [[one for one in numbers if one != out] for out in reversed(numbers)]:
        yield {"rollouts": tuple(scenario.rollouts[one] for one in kept), "faults": _bound(scenario.faults, kept)}


def _bound(faults: Sequence[Fault], kept: Sequence[int]) -> tuple[Fault, ...]:
    """The faults that can strike one of the rollouts `kept`, under their places among them."""
    moved = []
    for fault in faults:
        bound = fault.where.rollout
        if bound is None:
            moved.append(fault)
        elif bound in kept:
            moved.append(_with(fault, where=_with(fault.where, rollout=kept.index(bound))))
    return tuple(moved)


def _fewer_steps(scenario: Scenario) -> Iterator[dict[str, Any]]:
    for steps in _less(scenario.plan.steps):
        if plan := _plan(scenario.plan, steps=steps):
            yield {"plan": plan}


def _less(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """The steps without one of them, from the end; then with one of them made smaller."""
    for at in reversed(range(len(steps))):
        yield steps[:at] + steps[at + 1 :]
    for at, step in enumerate(steps):
        for smaller in _smaller(step):
            yield (*steps[:at], smaller, *steps[at + 1 :])


def _smaller(step: Step) -> Iterator[Step]:
    if isinstance(step, Parallel):
        yield from step.branches
        for at, branch in enumerate(step.branches):
            for smaller in _smaller(branch):
                yield _with(step, branches=(*step.branches[:at], smaller, *step.branches[at + 1 :]))
    elif isinstance(step, Subagent):
        yield from (_with(step, steps=steps) for steps in _less(step.steps) if steps)
    elif reply := getattr(step, "reply", None):
        plain = Reply()
        if reply != plain:
            yield _with(step, reply=plain)
        for field in ("tool_calls", "misbehave", "reasoning", "abort_after", "text"):
            if getattr(reply, field) != getattr(plain, field):
                yield from _valid(step, reply=_valid_reply(reply, field, getattr(plain, field)))


def _plainer(scenario: Scenario) -> Iterator[dict[str, Any]]:
    """One setting as it is by default, another after it; one session version of several."""
    for session in scenario.sessions if len(scenario.sessions) > 1 else ():
        yield {"sessions": (session,)}
    plain = EngineSettings()
    for field in EngineSettings.model_fields:
        if getattr(scenario.engine, field) != getattr(plain, field):
            yield {"engine": _with(scenario.engine, **{field: getattr(plain, field)})}
    for field in ("tools", "returns", "retries", "system"):
        default = Plan.model_fields[field].default
        if getattr(scenario.plan, field) != default and (plan := _plan(scenario.plan, **{field: default})):
            yield {"plan": plan}
    for field in ("sampling", "batch", "max_seq_len", "routing_replay"):
        if getattr(scenario, field) != (default := Scenario.model_fields[field].default):
            yield {field: default}


def _named_steps(scenario: Scenario) -> Scenario:
    """Each step under the key that it has, so that faults still find theirs when others are left out."""
    plan = _plan(scenario.plan, steps=_named(scenario.plan.steps, ""))
    return scenario if plan is None else scenario.model_copy(update={"plan": plan})


def _named(steps: Sequence[Step], prefix: str) -> tuple[Step, ...]:
    named: list[Step] = []
    for key, step in keyed(tuple(steps), prefix):
        if isinstance(step, Subagent):
            step = _with(step, steps=_named(step.steps, f"{key}."))
        elif isinstance(step, Parallel):
            inner = [_with(b, key=name, steps=_named(b.steps, f"{name}.")) for name, b in branches(key, step)]
            step = _with(step, branches=tuple(inner))
        named.append(_with(step, key=key))
    return tuple(named)


def _plan(plan: Plan, **change: Any) -> Plan | None:
    try:
        return Plan.model_validate({**dict(plan), **change})
    except ValueError:
        return None


def _valid(step: Any, reply: Reply | None) -> Iterator[Step]:
    if reply is not None:
        yield _with(step, reply=reply)


def _valid_reply(reply: Reply, field: str, value: Any) -> Reply | None:
    try:
        return Reply.model_validate({**dict(reply), field: value})
    except ValueError:
        return None


def _with(document: Document, **change: Any) -> Any:
    return document.model_copy(update=change)
