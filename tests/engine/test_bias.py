"""A biased draft is what a sampler with these logits gives."""

import math
from random import Random

import pytest

from miles_sim.engine.bias import biased
from miles_sim.engine.logprobs import State, logprob_of, next_state
from miles_sim.tokenizer import FIRST_SPACED_PIECE, ByteTokenizer

TOKENIZER = ByteTokenizer()
STOP = TOKENIZER.text_stop_id
START = State(7, 3)
WORD, OTHER = FIRST_SPACED_PIECE + 1, FIRST_SPACED_PIECE + 2


def sampled(ids: list[int], biases: dict[int, float], *, count: int) -> list[int]:
    made = biased(
        ids, biases, Random(0), limit=count, state=START, stop_ids=frozenset({STOP}), vocab_size=TOKENIZER.vocab_size
    )
    assert len(made.ids) == len(made.logprobs) <= count
    assert all(-100 < logprob <= 0 for logprob in made.logprobs)
    return made.ids


def test_a_great_bias_forces_an_id_to_the_bound() -> None:
    assert sampled([WORD, WORD, STOP], {OTHER: 100}, count=9) == [OTHER] * 9


def test_a_banned_id_makes_way_for_one_of_which_nothing_was_said() -> None:
    made = sampled([WORD] * 50, {WORD: -100, OTHER: 0}, count=50)
    assert len(made) == 50
    assert not {WORD, OTHER, STOP} & set(made)


def test_a_banned_stop_token_lets_the_reply_run_on() -> None:
    made = sampled([WORD, STOP], {STOP: -100}, count=20)
    assert len(made) == 20
    assert STOP not in made


def test_a_stop_token_that_is_lifted_ends_the_reply() -> None:
    assert sampled([WORD] * 9, {STOP: 100}, count=9) == [STOP]


def test_no_bias_changes_nothing() -> None:
    assert sampled([WORD, OTHER, STOP], {WORD: 0}, count=9) == [WORD, OTHER, STOP]


@pytest.mark.parametrize("bias", [-3.0, -1.0, 1.0])
def test_an_id_stays_as_often_as_its_odds_say(bias: float) -> None:
    count, expected, state = 3_000, 0.0, START
    made = sampled([WORD] * count, {WORD: bias}, count=count)
    for chosen in made:
        share = math.exp(logprob_of(next_state(state, WORD)))
        odds = share * math.exp(bias)
        expected += min(odds / (odds + 1 - share) / share, 1)  # the draft itself is one draw in `share`
        state = next_state(state, chosen)
    assert made.count(WORD) / count == pytest.approx(expected / count, abs=0.03)


def test_the_logprob_of_what_stays_is_that_of_the_moved_distribution() -> None:
    made = biased([WORD], {WORD: 2.0}, Random(0), limit=1, state=START, stop_ids=frozenset(), vocab_size=1_000)
    share = math.exp(logprob_of(next_state(START, WORD)))
    odds = share * math.exp(2)
    assert made.logprobs == [pytest.approx(math.log(odds / (odds + 1 - share)), abs=1e-5)]


def test_biases_beyond_all_measure_are_taken() -> None:
    assert sampled([WORD, STOP], {OTHER: 1e308, STOP: -1e308}, count=3) == [OTHER] * 3
