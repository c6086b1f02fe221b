"""The collector of cyclic garbage: in charge while it lasts, and as it was after."""

import gc
import weakref
from collections.abc import Iterator
from itertools import pairwise

import pytest

from miles_sim.verify.collector import EVERY, Collector


class Ring:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    assert gc.get_threshold() == threshold
    assert gc.get_freeze_count() == 0


def test_what_a_scenario_leaves_is_gone_when_it_is_over() -> None:
    with Collector() as collector:
        for _ in range(5):
            left = weakref.ref(Ring())
            collector.played()
            assert left() is None


def test_what_stays_is_looked_at_ever_more_rarely() -> None:
    with Collector() as collector:
        kept, counts = [], []
        for _ in range(8):
            collector.played()
            counts.append(gc.get_freeze_count())
            kept.append(Ring())
        assert [new > old for old, new in pairwise(counts)] == [
            True, False, True, False, False, False, True,
        ]  # fmt: skip


def test_what_stayed_for_a_while_and_is_then_left_is_gone_in_the_end() -> None:
    with Collector() as collector:
        for _ in range(4):
            collector.played()
        ring = Ring()
        left = weakref.ref(ring)
        collector.played()
        del ring
        for _ in range(EVERY):
            collector.played()
        assert left() is None
