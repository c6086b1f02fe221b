"""Chance: the same bytes for the same key and purpose, however they are read."""

from hypothesis import given
from hypothesis import strategies as st

from miles_sim.engine.prompt import Prompt
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.seeding import Stream, asked_key


@given(st.binary(min_size=16, max_size=16), st.lists(st.integers(0, 300), max_size=4))
def test_a_stream_is_the_same_in_whatever_pieces_it_is_read(key: bytes, counts: list[int]) -> None:
    stream = Stream(key, "text")
    assert b"".join([stream.randbytes(n) for n in counts]) == Stream(key, "text").randbytes(sum(counts))
    assert Stream(key, "text").randbytes(64) != Stream(key, "more text").randbytes(64)
    assert Stream(key, "text").randbytes(64) != Stream(key[:15] + bytes([key[15] ^ 1]), "text").randbytes(64)


def test_what_is_asked_has_a_key_of_its_own_wherever_one_part_ends_and_the_next_begins() -> None:
    sampling = Sampling()
    prompts = [Prompt(ids, "").packed for ids in ((1,), (1, 2), ())]
    asked = [
        *(asked_key(prompt, "a", sampling) for prompt in prompts),
        asked_key(prompts[0], "", sampling),
        asked_key(prompts[0], "a", sampling, "b"),
        asked_key(prompts[0], "ab", sampling),
        asked_key(prompts[0], "a", Sampling(seed=1)),
    ]
    assert len(set(asked)) == len(asked)
    assert asked_key(prompts[0], "a", sampling) == asked[0]
