"""What fired is told in the order of places, and can be done again."""

from miles_sim.faults.decide import ordered
from miles_sim.faults.journal import Journal, explicit
from miles_sim.faults.place import Place
from miles_sim.faults.plan import Fault, Where

FAULTS = [Fault(kind="http-503", params={"delivered": True}), Fault(kind="consumer-timeout")]


def test_entries_come_in_the_order_of_places_whenever_they_were_made() -> None:
    engine, session = ordered(FAULTS)
    journal = Journal()
    journal.met(engine, Place(1, 0, "1", 0)).lost += ["b", "a", "b"]
    journal.met(engine, Place(0, 1, "2", 1))
    journal.met(engine, Place(0, 1, "2", 0))
    journal.met(session, Place(0, 1, "2", 0)).cannot = "there is nothing"
    assert [(f.rollout, f.step, f.attempt, f.lost) for f in journal.fired()] == [
        (0, "2", 0, ()),
        (0, "2", 1, ()),
        (1, "1", 0, ("a", "b")),
    ]
    (missed,) = journal.missed()
    assert (missed.fault, missed.kind, missed.reason) == (1, "consumer-timeout", "there is nothing")


def test_the_explicit_plan_names_each_place_and_leaves_nothing_to_a_draw() -> None:
    (engine, _) = ordered(FAULTS)
    journal = Journal()
    journal.met(engine, Place(3, 1, "2", 1))
    assert explicit(FAULTS, journal.fired()) == (
        Fault(kind="http-503", params={"delivered": True}, where=Where(rollout=3, step="2", attempt=1)),
    )
