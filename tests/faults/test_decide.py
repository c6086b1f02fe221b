"""Whether a fault strikes: by seed and place alone."""

from typing import Any

import pytest

from miles_sim.faults.decide import ParamsError, ordered, randomness, strikes, striking
from miles_sim.faults.place import Place
from miles_sim.faults.plan import Fault

PLACES = [
    Place(rollout, ordinal, str(ordinal + 1), attempt)
    for rollout in (0, 1)
    for ordinal in range(6)
    for attempt in (0, 1)
]


def struck(seed: int = 0, **fields: Any) -> list[Place]:
    (order,) = ordered([Fault.model_validate({"kind": "http-503", **fields})])
    return [place for place in PLACES if strikes(order, place, seed=seed)]


def test_without_where_and_when_every_place_is_struck() -> None:
    assert struck() == PLACES


def test_where_must_hold_in_all_that_it_gives() -> None:
    assert struck(where={"rollout": 1, "step": "2", "attempt": 0}) == [Place(1, 1, "2", 0)]
    assert {place.step for place in struck(where={"step": "[12]"})} == {"1", "2"}


def test_the_first_attempts_at_each_place_are_struck_and_then_it_is_fine() -> None:
    assert struck(when={"first": 1}) == [place for place in PLACES if place.attempt == 0]


def test_every_third_question_is_counted_in_the_plans_order() -> None:
    assert {place.step for place in struck(when={"every": 3})} == {"3", "6"}


def test_a_draw_depends_on_seed_and_place_alone() -> None:
    drawn = struck(when={"probability": 0.5})
    assert drawn == struck(when={"probability": 0.5})
    assert drawn != struck(seed=1, when={"probability": 0.5})
    assert 0 < len(drawn) < len(PLACES)


def test_each_attempt_has_a_draw_of_its_own() -> None:
    first = {(p.rollout, p.step) for p in struck(when={"probability": 0.5}) if p.attempt == 0}
    second = {(p.rollout, p.step) for p in struck(when={"probability": 0.5}) if p.attempt == 1}
    assert first != second


def test_of_two_that_strike_the_first_of_the_plan_does() -> None:
    orders = ordered([Fault(kind="http-500"), Fault(kind="http-503")])
    found = striking(orders, "engine", PLACES[0], seed=0)
    assert found is not None
    assert found.number == 0


def test_what_is_on_another_edge_does_not_strike() -> None:
    assert striking(ordered([Fault(kind="http-500")]), "session", PLACES[0], seed=0) is None


def test_chance_does_not_depend_on_where_in_the_plan_a_fault_stands() -> None:
    one, other = ordered([Fault(kind="http-503"), Fault(kind="http-503")])
    assert randomness(one, PLACES[0], seed=4).random() == randomness(other, PLACES[0], seed=4).random()
    assert randomness(one, PLACES[0], seed=4).random() != randomness(one, PLACES[1], seed=4).random()


def test_parameters_that_the_kind_does_not_take_are_named() -> None:
    with pytest.raises(ParamsError, match=r"kind 'http-503': params: .*nonsense"):
        ordered([Fault(kind="http-503", params={"nonsense": 1})])
