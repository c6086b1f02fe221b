"""Sums over units depend on what was played, never on the order of arrival."""

from hypothesis import given
from hypothesis import strategies as st

from miles_sim.campaign.run import in_order
from miles_sim.campaign.summary import Summary, Tally
from miles_sim.campaign.unit import Broken, Unit

KINDS = ("http-503", "http-429", "http-404")
BROKEN = Broken(contract="faults/nothing-false", message="untrue", where="rollout 0", places=2)


@st.composite
def unit_lists(draw: st.DrawFn) -> list[Unit]:
    counts = st.dictionaries(st.sampled_from(KINDS), st.integers(1, 5))
    return [
        Unit(
            number=number,
            session="v2",
            rollouts=draw(st.integers(1, 8)),
            samples=draw(st.integers(0, 9)),
            fired=draw(counts),
            idle=draw(counts),
            false_samples=draw(st.integers(0, 2)),
            broken=draw(st.sampled_from(((), (BROKEN,)))),
        )
        for number in range(draw(st.integers(0, 6)))
    ]


def summed(units: list[Unit]) -> Summary:
    tally = Tally()
    for unit in units:
        tally.add(unit)
    return tally.summary()


@given(units=unit_lists())
def test_totals_are_the_sums_of_the_units(units: list[Unit]) -> None:
    summary = summed(units)
    assert summary.rollouts == sum(unit.rollouts for unit in units)
    assert summary.faults_fired == sum(sum(unit.fired.values()) for unit in units)
    assert summary.faults_fired == sum(kind.fired for kind in summary.by_kind)
    assert summary.false_samples == sum(unit.false_samples for unit in units)
    assert summary.violations == sum(len(unit.broken) for unit in units) == sum(summary.by_contract.values())


@given(units=unit_lists(), data=st.data())
def test_any_order_of_arrival_gives_the_same_stream(units: list[Unit], data: st.DataObject) -> None:
    arrived = data.draw(st.permutations(units))
    assert list(in_order(arrived, 0)) == units


def test_a_kind_is_told_with_its_layer_and_verdict() -> None:
    (kind,) = summed([Unit(number=0, session="v2", rollouts=8, fired={"http-503": 3}, struck={"http-503": 2})]).by_kind
    assert (kind.layer, kind.fired, kind.rollouts) == ("http", 3, 2)
