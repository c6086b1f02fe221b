"""Replies that a fault spoils before the engine says them."""

from collections.abc import Iterator
from dataclasses import dataclass

from miles_sim.agent.plan import asked
from miles_sim.faults.check import places
from miles_sim.faults.decide import Order, ordered, striking
from miles_sim.faults.place import Place
from miles_sim.faults.strike import CannotStrike
from miles_sim.reply import Reply
from miles_sim.scenarios.model import Scenario


@dataclass(frozen=True)
class Spoiled:
    """One reply. Its place's attempt counts how often the engine was asked the very same thing."""

    order: Order
    place: Place
    reply: Reply
    cannot: str | None = None
    """Why it is as the plan has it all the same."""


def spoiled_replies(scenario: Scenario) -> Iterator[Spoiled]:
    """All that the faults on the model's edge strike, whether or not a play comes to it."""
    orders = [order for order in ordered(scenario.faults) if order.kind.edge == "model"]
    if not orders:
        return
    replies = {question.key: question.replies for question in asked(scenario.plan.steps)}
    for place in places(scenario.plan, "model", range(len(scenario.rollouts))):
        order = striking(orders, "model", place, seed=scenario.seed)
        if order is not None:
            planned = replies[place.step]
            yield _spoiled(order, place, planned[min(place.attempt, len(planned) - 1)])


def _spoiled(order: Order, place: Place, planned: Reply) -> Spoiled:
    try:
        return Spoiled(order, place, order.kind.effect(order.params, planned))
    except CannotStrike as error:
        return Spoiled(order, place, planned, str(error))
