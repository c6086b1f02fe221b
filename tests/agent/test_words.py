from hypothesis import given
from hypothesis import strategies as st

from miles_sim.agent.words import work_words


def test_words_are_those_of_every_release() -> None:
    assert work_words(0, "1", 8) == "Event fix shard reset profile context port copy"


@given(st.integers(0, 2**32), st.text(max_size=8), st.integers(0, 30))
def test_count_is_kept_and_no_tag_can_stand_in_them(seed: int, key: str, count: int) -> None:
    text = work_words(seed, key, count)
    assert len(text.split()) == count
    assert "[" not in text
    assert text.isascii()
