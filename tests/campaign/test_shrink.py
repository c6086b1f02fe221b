"""The smallest of what still fails."""

from collections.abc import Callable

import pytest

from miles_sim.agent.plan import walk
from miles_sim.campaign.draw import drawn
from miles_sim.campaign.settings import chosen_kinds
from miles_sim.campaign.shrink import shrink
from miles_sim.faults.plan import Fault, Where
from miles_sim.scenarios.model import Scenario

KINDS = chosen_kinds(("http-*",))


def scenario() -> Scenario:
    """Three turns, three rollouts, four faults."""
    plan = {"steps": [{"do": "say"}, {"do": "say", "reply": {"tokens": 5}}, {"do": "say"}]}
    faults = [
        {"kind": "http-503", "where": {"rollout": 0, "step": "1"}},
        {"kind": "http-429", "where": {"rollout": 1, "step": "2"}},
        {"kind": "http-404", "where": {"rollout": 1, "step": "3"}},
        {"kind": "http-500", "where": {"rollout": 2}},
    ]
    rollouts = [{"index": n} for n in range(3)]
    told = {"name": "big", "title": "big", "plan": plan, "faults": faults, "rollouts": rollouts}
    return Scenario.model_validate(told)


def has(kind: str) -> Callable[[Scenario], bool]:
    return lambda one: any(fault.kind == kind for fault in one.faults)


def test_one_guilty_fault_is_left_with_the_step_and_rollout_that_it_needs() -> None:
    result = shrink(scenario(), has("http-429"))
    assert result.complete
    assert result.scenario.faults == (Fault(kind="http-429", where=Where(rollout=0, step="2")),)
    assert [key for key, _ in walk(result.scenario.plan.steps)] == ["2"]
    assert len(result.scenario.rollouts) == 1


def test_two_faults_that_fail_together_only_are_both_left() -> None:
    both = lambda one: has("http-503")(one) and has("http-404")(one)  # noqa: E731
    assert [fault.kind for fault in shrink(scenario(), both).scenario.faults] == ["http-503", "http-404"]


def test_the_same_comes_out_twice() -> None:
    assert shrink(scenario(), has("http-500")) == shrink(scenario(), has("http-500"))


def test_no_more_plays_are_spent_than_allowed() -> None:
    played = []

    def fails(one: Scenario) -> bool:
        played.append(one)
        return has("http-404")(one)

    result = shrink(scenario(), fails, plays=3)
    assert (len(played), result.plays, result.complete) == (3, 3, False)


@pytest.mark.parametrize("number", range(8))
def test_what_is_left_fails_and_cannot_lose_a_fault(number: int) -> None:
    big = drawn(1, number, kinds=KINDS, rollouts=3)
    guilty = big.faults[0].kind
    small = shrink(big, has(guilty)).scenario
    assert [fault.kind for fault in small.faults] == [guilty]
    assert len(small.rollouts) == 1
    assert len(list(walk(small.plan.steps))) <= len(list(walk(big.plan.steps)))
