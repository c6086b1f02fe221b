"""Exchanges are counted by place, and each strike is taken down."""

from random import Random
from typing import Any

from miles_sim.faults.decide import ordered
from miles_sim.faults.injector import Injector
from miles_sim.faults.journal import Journal
from miles_sim.faults.locate import Spot
from miles_sim.faults.plan import Fault
from miles_sim.faults.strike import Answer, Asked

GIVEN = Answer(200, b'{"id":"g1"}')


def asked(place: str) -> Asked:
    return Asked("POST", place, (), b"")


def locate(request: Asked) -> Spot | None:
    """`rollout/ordinal`, or nowhere."""
    if not request.path:
        return None
    rollout, ordinal = map(int, request.path.split("/"))
    return Spot("engine", rollout, ordinal, str(ordinal + 1))


def injector(*faults: dict[str, Any]) -> tuple[Injector, Journal]:
    journal = Journal()
    orders = ordered(Fault.model_validate(fault) for fault in faults)
    return Injector(orders, seed=0, locate=locate, journal=journal), journal


def test_attempts_are_counted_at_each_place_struck_or_not() -> None:
    inject, journal = injector({"kind": "http-503", "where": {"rollout": 0}, "when": {"first": 2}})
    met = [inject.meet(asked(place)) for place in ("0/0", "1/0", "0/0", "0/1", "0/0")]
    assert [(m.place.attempt, m.entry is not None) for m in met if m] == [
        (0, True),
        (0, False),
        (1, True),
        (0, True),
        (2, False),
    ]
    assert [(f.step, f.attempt) for f in journal.fired()] == [("1", 0), ("1", 1), ("2", 0)]


def test_what_comes_in_another_order_is_struck_all_the_same() -> None:
    places = ["0/0", "0/1", "0/2", "1/0", "1/1", "1/2"]
    fired = []
    for seed in range(3):
        inject, journal = injector({"kind": "http-503", "when": {"probability": 0.5}})
        for place in Random(seed).sample(places, k=len(places)):
            inject.meet(asked(place))
        fired.append(journal.fired())
    assert fired[0] == fired[1] == fired[2] != ()


def test_what_is_nowhere_is_not_met() -> None:
    inject, journal = injector({"kind": "http-503"})
    assert inject.meet(asked("")) is None
    assert journal.fired() == ()


def test_answers_are_read_only_where_a_fault_needs_them() -> None:
    assert not injector({"kind": "http-503"})[0].reads("engine")
    assert injector({"kind": "payload-response-id-duplicate"})[0].reads("engine")
    assert injector({"kind": "model-empty"})[0].reads("engine")
    assert not injector({"kind": "payload-response-id-duplicate"})[0].reads("session")


def test_the_first_good_answer_of_a_rollout_is_what_later_ones_are_mixed_up_with() -> None:
    inject, _ = injector({"kind": "payload-response-id-duplicate", "where": {"step": "2"}})
    first, later, other = (inject.meet(asked(place)) for place in ("0/0", "0/1", "1/1"))
    assert first is not None
    assert later is not None
    assert other is not None
    inject.handed_over(first, Answer(500, b""), [])
    assert inject.earlier(later) is None
    inject.handed_over(first, GIVEN, [GIVEN])
    inject.handed_over(later, Answer(200, b"later"), [])
    assert inject.earlier(later) == GIVEN
    assert inject.earlier(other) is None


def test_a_generation_is_unheard_until_an_answer_with_it_came_to_its_end() -> None:
    inject, _ = injector({"kind": "model-empty"})
    meeting = inject.meet(asked("0/0"))
    assert meeting is not None
    inject.answered(meeting, [GIVEN])
    assert inject.unheard() == {"g1"}
    inject.handed_over(meeting, GIVEN, [GIVEN])
    assert inject.unheard() == frozenset()


def test_an_engine_that_died_strikes_every_later_request_by_the_fault_that_ended_it() -> None:
    inject, journal = injector(
        {"kind": "engine-death", "where": {"rollout": 0, "step": "1"}}, {"kind": "http-503", "where": {"rollout": 1}}
    )
    for place in ("0/0", "0/1", "1/0"):
        meeting = inject.meet(asked(place))
        assert meeting is not None
        inject.dead(meeting)
    assert [(f.kind, f.rollout, f.step) for f in journal.fired()] == [
        ("engine-death", 0, "1"),
        ("engine-death", 0, "2"),
        ("engine-death", 1, "1"),
    ]
    assert [(m.kind, m.reason) for m in journal.missed()] == [("http-503", "the engine is dead")]


def test_an_edge_matters_where_something_strikes_or_depends_on_it() -> None:
    minded = {
        name: {edge for edge in ("engine", "session", "driver") if injector({"kind": name})[0].minds(edge)}
        for name in (
            "http-503",
            "session-forgotten",
            "consumer-hangs-up-before",
            "session-collect-404",
            "agent-cancels",
        )
    }
    assert minded == {
        "http-503": {"engine"},
        "session-forgotten": {"session", "engine"},
        "consumer-hangs-up-before": {"session", "engine"},
        "session-collect-404": {"driver"},
        "agent-cancels": {"driver"},
    }
