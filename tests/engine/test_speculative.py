"""Speculative counters are the arithmetic of the steps that were drawn."""

from random import Random
from typing import Any

import hypothesis
import pytest
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


@hypothesis.settings(max_examples=15, deadline=None)
@given(length=st.floats(1, 6), seed=st.integers(0, 10_000))
def test_a_target_accept_length_is_what_steps_give_on_average(length: float, seed: int) -> None:
    settings = Speculative(draft_tokens=6, accept_length=length)
    (probability,) = settings.positions
    assert abs(sum(probability**k for k in range(6)) - length) < 1e-6
    steps = accepted_drafts(5_000, settings, Random(seed))
    assert abs(1 + sum(steps) / len(steps) - length) < 0.4


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"accept_length": 2.4, "acceptance": (0.5,)}, "acceptance and accept_length exclude each other"),
        ({"accept_length": 5, "draft_tokens": 4}, "accept_length: 5 ids a step are more than draft_tokens, 4"),
        ({"accept_length": 0.5}, "greater than or equal to 1"),
        ({"accept_length": float("nan")}, "greater than or equal to 1"),
        ({"acceptance": (1.5,)}, "one or more probabilities from 0 to 1"),
        ({"acceptance": ()}, "one or more probabilities from 0 to 1"),
    ],
)
def test_a_speculation_that_cannot_be_is_refused_by_name(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Speculative(**fields)


def test_a_speculation_survives_its_own_document() -> None:
    for settings in (Speculative(), Speculative(accept_length=2.4), Speculative(acceptance=(0.1,))):
        assert Speculative.model_validate(settings.model_dump()) == settings
