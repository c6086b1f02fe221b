"""At every place there is one distribution: it sums to one, and hangs on what stands before."""

import json
import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from miles_sim.engine.fragments import numbers
from miles_sim.engine.logprobs import (
    Logprobs,
    Place,
    draw_of,
    logprob_of,
    next_state,
    place_draws,
    prompt_logprobs,
    state_after,
)
from miles_sim.engine.packed import pack

LOGPROBS = st.integers(1, 3_000_000).map(lambda n: -n / 1_000_000)
DRAWS = st.integers(0, 2**32 - 1)
SIZES = st.integers(100, 900)


@given(LOGPROBS, DRAWS, SIZES, st.data())
def test_the_whole_vocabulary_is_a_distribution(logprob: float, draw: int, size: int, data: st.DataObject) -> None:
    token = data.draw(st.integers(0, size - 1))
    place = Place(token, logprob, draw, size)
    whole = place.top(size)
    assert sorted(found for _, found in whole) == list(range(size))
    assert [told for told, _ in whole] == sorted((told for told, _ in whole), reverse=True)
    total = sum(math.exp(told) for told, _ in whole)
    assert 0.999 < total < 1.001
    assert (logprob, token) in whole
    assert all(place.logprob(found) == told for told, found in whole)


@given(LOGPROBS, DRAWS, SIZES, st.integers(0, 20))
def test_fewer_alternatives_are_the_first_of_more(logprob: float, draw: int, size: int, count: int) -> None:
    place = Place(1, logprob, draw, size)
    assert place.top(count) == place.top(count + 3)[:count]


@given(st.lists(st.integers(0, 999), max_size=30), st.data())
def test_draws_hang_on_seed_and_all_ids_before(ids: list[int], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(ids)))
    whole = place_draws(ids, start=0, seed=1)
    assert place_draws(ids, start=start, seed=1) == whole[start:]
    assert place_draws([*ids, 5], start=0, seed=1)[: len(ids)] == whole
    if ids:
        assert place_draws(ids, start=0, seed=2)[0] != whole[0]


@given(st.lists(st.integers(0, 999), min_size=1, max_size=30))
def test_the_first_prompt_id_has_no_logprob(ids: list[int]) -> None:
    first, *others = prompt_logprobs(ids, start=0, seed=1)
    assert first is None
    assert all(other is not None and -3 <= other < 0 for other in others)


@given(st.lists(st.integers(0, 9_999), min_size=1, max_size=30), st.data())
def test_a_sampled_id_is_told_the_same_where_it_stands_in_a_prompt(ids: list[int], data: st.DataObject) -> None:
    place = data.draw(st.integers(1, len(ids)))
    sampled = [*Logprobs(pack(ids[:place]), pack(ids[place:]), seed=3)]
    assert sampled == prompt_logprobs(ids, start=place, seed=3)
    assert sampled == prompt_logprobs(ids, start=0, seed=3)[place:]
    assert all(-3 <= logprob < 0 for logprob in sampled)


def test_neighbours_and_other_contexts_are_told_apart() -> None:
    ids = [*range(300, 700)]
    once, again = (Logprobs(pack([1, 2, n]), pack(ids), seed=3) for n in (3, 4))
    assert len(set(once)) > 300
    assert sum(a == b for a, b in zip(once, again, strict=True)) < 3


@given(st.lists(st.integers(0, 2**32 - 1), max_size=30), st.integers(0, 2**32 - 1), st.integers(0, 30))
def test_a_state_goes_on_id_by_id(ids: list[int], token: int, start: int) -> None:
    state = state_after(pack(ids[:start]), 7)
    for number, following in enumerate([*ids[start:], token], start=min(start, len(ids))):
        assert draw_of(state) == place_draws([*ids, token], start=number, seed=7)[0]
        state = next_state(state, following)
        assert state == state_after(pack([*ids, token][: number + 1]), 7)
        assert logprob_of(state) == Logprobs(pack(ids[:number]), pack([following]), seed=7)[0]


def test_all_logprobs_are_drawn_alike() -> None:
    told = [*Logprobs(pack([1]), pack([0] * 60_000), seed=0)]
    assert len(set(told)) == 1_024
    assert -1.55 < sum(told) / len(told) < -1.45
    assert len({a - b for a, b in pairwise(told)}) > 2_000


@given(st.lists(st.integers(0, 999), min_size=1, max_size=30), st.data())
def test_sampled_logprobs_are_read_as_a_tuple_is_and_spelled_as_json_spells_them(
    ids: list[int], data: st.DataObject
) -> None:
    told = Logprobs(b"", pack(ids), seed=5)
    whole = tuple(told)
    start, end = data.draw(st.integers(0, len(ids))), data.draw(st.integers(0, len(ids)))
    assert len(told) == len(whole) == len(ids)
    assert told[start:end] == whole[start:end]
    assert told[-1] == whole[-1]
    assert {type(value) for value in (*whole, told[0])} == {float}
    assert [*numbers(told)] == [*numbers(whole)] == [json.dumps(value).encode() for value in whole]
