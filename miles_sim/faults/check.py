"""What a fault plan cannot mean, refused with the place and the reason before anything is played."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from miles_sim.agent.plan import Plan, asked, walk
from miles_sim.agent.steps import Ask, Retry
from miles_sim.faults.catalogue import UnknownFaultError
from miles_sim.faults.decide import Order, ParamsError, ordered
from miles_sim.faults.locate import DRIVER_STEPS, questions
from miles_sim.faults.place import Edge, Place
from miles_sim.faults.plan import Fault

DRIVER_ATTEMPTS = 4
"""Attempts of a driver that can be struck; how often it asks again is its own affair."""
EXTRA_ATTEMPTS = 64
"""Requests that a fault on the agent's edge may add to a step's own."""
RETURN = "return"
"""Step of the agent's edge at its end, where it returns."""
_EDGES_OF: dict[str, frozenset[Edge]] = {
    "v1": frozenset({"engine", "session", "driver", "model", "agent"}),
    "v2": frozenset({"engine", "session", "driver", "model", "agent"}),
    "direct": frozenset({"engine", "model"}),
}
"""Where a play of each session version can be struck: a direct one has no session server and no agent's requests."""

Steps = Sequence[tuple[str, int]]
"""The steps of an edge and how many attempts each has, in order."""


class FaultPlanError(ValueError):
    """A plan of faults that is unknown, unreachable or contradictory."""


def check(faults: Sequence[Fault], plan: Plan, *, rollouts: int, sessions: Iterable[str]) -> None:
    """`FaultPlanError` for the first fault that cannot be, or for two of which one could never strike.

    `rollouts`: how many the scenario has. A fault that a draw decides is asked only whether it could strike.
    """
    orders = tuple(_known(number, fault) for number, fault in enumerate(faults))
    extra = EXTRA_ATTEMPTS if any(order.kind.edge == "agent" for order in orders) else 0
    steps = {edge: _steps(plan, edge) for edge in {order.kind.edge for order in orders}}
    for order in orders:
        _edge_is_there(order, sessions)
        _where_is_somewhere(order, plan, steps[order.kind.edge], rollouts, extra)
    _check_once(orders, steps, rollouts)


def places(plan: Plan, edge: Edge, rollouts: Iterable[int]) -> Iterator[Place]:
    """All places of an edge that a play could come to, attempts in order."""
    for rollout in rollouts:
        for ordinal, (step, attempts) in enumerate(_steps(plan, edge)):
            for attempt in range(attempts):
                yield Place(rollout, ordinal, step, attempt)


def _known(number: int, fault: Fault) -> Order:
    try:
        (order,) = ordered([fault])
    except (UnknownFaultError, ParamsError) as error:
        raise FaultPlanError(f"faults[{number}]: {error}") from None
    return Order(number, order.fault, order.kind, order.params)


def _edge_is_there(order: Order, sessions: Iterable[str]) -> None:
    for session in sessions:
        if order.kind.edge not in _EDGES_OF[session]:
            raise FaultPlanError(
                f"faults[{order.number}]: kind {order.kind.name!r} strikes on the edge {order.kind.edge!r}, "
                f"and session {session!r} has only {', '.join(sorted(_EDGES_OF[session]))}"
            )


def _where_is_somewhere(order: Order, plan: Plan, all_steps: Steps, rollouts: int, extra: int) -> None:
    where, edge, at = order.fault.where, order.kind.edge, f"faults[{order.number}]"
    if where.rollout is not None and where.rollout >= rollouts:
        raise FaultPlanError(f"{at}: where.rollout: {where.rollout} is not one of the {rollouts}, counted from 0")
    steps = [(step, attempts) for step, attempts in all_steps if order.kind.fits(step)]
    fitting = [(step, attempts) for step, attempts in steps if where.step is None or fnmatchcase(step, where.step)]
    if not fitting:
        known = ", ".join(step for step, _ in steps) or "none"
        raise FaultPlanError(
            f"{at}: where.step: {where.step!r} fits no step that {order.kind.name!r} can strike: {known}{_hint(plan)}"
        )
    most = max(attempts for _, attempts in fitting) + (extra if edge in ("engine", "session") else 0)
    if where.attempt is not None and where.attempt >= most:
        raise FaultPlanError(
            f"{at}: where.attempt: {where.attempt} is never made: attempts are 0 to {most - 1} "
            "(plan.retries, and steps that retry, make more)"
        )
    if not any(True for _ in _fitting(order, all_steps, [where.rollout])):
        raise FaultPlanError(f"{at}: when: fits none of the {len(steps)} steps of the edge {edge!r} that where allows")


def _hint(plan: Plan) -> str:
    retries = [key for key, step in walk(plan.steps) if isinstance(step, Retry)]
    return f" (retry {', '.join(retries)}: a further attempt of the step that it asks again)" if retries else ""


def _check_once(orders: Sequence[Order], steps: Mapping[Edge, Steps], rollouts: int) -> None:
    """Refuse two that are sure to strike one place: what every rollout has is looked at in those that are named, and
    in one that is not."""
    named = sorted({order.fault.where.rollout for order in orders} - {None}, key=lambda number: number or 0)
    others = [number for number in range(len(named) + 1) if number not in named and number < rollouts][:1]
    taken: dict[tuple[Edge, Place], Order] = {}
    for order in (order for order in orders if order.certain):
        where = order.fault.where.rollout
        for place in _fitting(order, steps[order.kind.edge], [*named, *others] if where is None else [where]):
            first = taken.setdefault((order.kind.edge, place), order)
            if first is not order:
                raise FaultPlanError(
                    f"faults[{first.number}] and faults[{order.number}]: {first.kind.name!r} and {order.kind.name!r} "
                    f"both strike rollout {place.rollout}, step {place.step!r}, attempt {place.attempt}, and one "
                    "request is struck once"
                )


def _fitting(order: Order, steps: Steps, rollouts: Iterable[int | None]) -> Iterator[Place]:
    where = order.fault.where
    for ordinal, (step, attempts) in enumerate(steps):
        if where.step is None or fnmatchcase(step, where.step):
            for attempt in range(attempts) if where.attempt is None else [where.attempt]:
                places = (Place(rollout or 0, ordinal, step, attempt) for rollout in rollouts)
                yield from (place for place in places if order.fits(place))


def _steps(plan: Plan, edge: Edge) -> Steps:
    retries = int(getattr(plan, "retries", 0)) + 1
    if edge == "driver":
        return [(step, DRIVER_ATTEMPTS) for step in DRIVER_STEPS]
    if edge == "agent":
        return [*((key, 1) for key, step in walk(plan.steps) if isinstance(step, Ask)), (RETURN, 1)]
    replies = {question.key: len(question.replies) for question in asked(plan.steps)}
    return [(question.key, replies[question.key] * retries) for question in questions(plan)]
