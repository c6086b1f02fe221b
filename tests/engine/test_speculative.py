"""Speculative counters are the arithmetic of the steps that were drawn."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from miles_sim.engine.settings import Speculative
from miles_sim.engine.speculative import accepted_drafts, truth

speculations = st.builds(
    Speculative,
    draft_tokens=st.integers(2, 8),
    acceptance=st.lists(st.floats(0, 1), min_size=1, max_size=5).map(tuple),
)


@given(tokens=st.integers(0, 300), settings=speculations, seed=st.integers(0, 10_000))
def test_counters_keep_the_laws_of_the_release(tokens: int, settings: Speculative, seed: int) -> None:
    steps = accepted_drafts(tokens, settings, Random(seed))
    counted = truth(steps, settings)
    assert counted.verify_ct == len(steps) == sum(counted.histogram)
    assert counted.accepted == sum(k * n for k, n in enumerate(counted.histogram))
    assert counted.drafted == counted.verify_ct * (settings.draft_tokens - 1)
    assert counted.accepted <= counted.drafted
    assert len(counted.histogram) <= settings.draft_tokens
    assert not counted.histogram or counted.histogram[-1] > 0
    assert tokens <= 1 + counted.accepted + counted.verify_ct


@given(tokens=st.integers(2, 300), settings=speculations, seed=st.integers(0, 10_000))
def test_no_step_runs_once_all_is_said(tokens: int, settings: Speculative, seed: int) -> None:
    steps = accepted_drafts(tokens, settings, Random(seed))
    assert 1 + sum(accepted + 1 for accepted in steps[:-1]) < tokens


@given(tokens=st.integers(0, 1), settings=speculations)
def test_the_first_id_comes_from_the_prefill_and_is_no_step(tokens: int, settings: Speculative) -> None:
    counted = truth(accepted_drafts(tokens, settings, Random(0)), settings)
    assert (counted.verify_ct, counted.accepted, counted.drafted, counted.histogram) == (0, 0, 0, ())


def test_certain_acceptance_takes_all_drafts_and_a_bonus_each_step() -> None:
    settings = Speculative(draft_tokens=4, acceptance=(1.0,))
    assert accepted_drafts(9, settings, Random(0)) == [3, 3]


def test_the_last_step_is_counted_whole_where_its_tail_is_cut() -> None:
    counted = truth(accepted_drafts(3, Speculative(draft_tokens=4, acceptance=(1.0,)), Random(0)), Speculative())
    assert (counted.accepted, counted.verify_ct) == (3, 1)


def test_the_last_probability_holds_for_all_further_positions() -> None:
    settings = Speculative(draft_tokens=6, acceptance=(1.0, 0.0))
    assert set(accepted_drafts(40, settings, Random(0))) == {1}


def test_the_example_of_the_release_comes_out() -> None:
    counted = truth([2, 1, 2], Speculative(draft_tokens=4))
    assert (counted.accepted, counted.drafted, counted.verify_ct, counted.histogram) == (5, 9, 3, (0, 1, 2))
