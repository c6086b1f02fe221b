"""Chance: the same bytes for the same key and purpose, however they are come by."""

from hypothesis import given
from hypothesis import strategies as st

from miles_sim.engine.prompt import Prompt
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.seeding import Stream, asked_key, chance


@given(st.binary(min_size=16, max_size=16), st.lists(st.integers(1, 70), max_size=4))
def test_a_stream_gives_the_bytes_of_the_generator(key: bytes, counts: list[int]) -> None:
    stream, random = Stream(key, "text"), chance(key, "text")
    assert [stream.randbytes(4 * n) for n in counts] == [random.randbytes(4 * n) for n in counts]
    if counts:
        assert Stream(key, "text").randbytes(64) != Stream(key, "more text").randbytes(64)


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
