"""What a stream lets out adds up to the text, never breaks a character, and is never taken back."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from miles_sim.engine.detokenizer import TextStream
from miles_sim.engine.finish import Trim
from miles_sim.tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()
LENGTH = {"type": "length", "length": 9}
PIECES = st.lists(st.sampled_from(["a", "字", "é", "🙂", " ", "\n", "word "]), max_size=12)


def told(ids: list[int], cuts: list[int], reason: dict[str, Any], **how: bool) -> list[str]:
    stream = TextStream(TOKENIZER, Trim(**how))
    said, at = [], 0
    for cut in sorted(cuts):
        said.append(stream.push(ids[at : max(cut, at)]))
        at = max(cut, at)
    return [*said, stream.end(ids, reason)]


@given(PIECES, st.data())
def test_all_that_is_let_out_is_the_text_in_whole_characters(pieces: list[str], data: st.DataObject) -> None:
    ids = TOKENIZER.encode("".join(pieces))
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=8))
    said = told(ids, cuts, LENGTH)
    assert "".join(said) == "".join(pieces)
    assert not any("\ufffd" in one for one in said)


def test_a_broken_character_is_told_at_the_end() -> None:
    ids = TOKENIZER.encode("ab字")[:-1]
    assert told(ids, [1, 2, 3], LENGTH) == ["a", "b", "", "\ufffd"]


def test_a_stop_token_is_told_only_where_it_is_wanted() -> None:
    stop = TOKENIZER.text_stop_id
    ids, reason = [*TOKENIZER.encode("hi"), stop], {"type": "stop", "matched": stop}
    assert "".join(told(ids, [1], reason)) == "hi"
    assert "".join(told(ids, [1], reason, no_stop_trim=True, skip_special_tokens=False)) == "hi<|im_end|>"


def test_what_was_let_out_of_a_stop_string_stays_out() -> None:
    reason = {"type": "stop", "matched": "END"}
    assert told(TOKENIZER.encode("go END"), [3, 4, 5], reason) == ["go ", "E", "N", ""]
    assert told(TOKENIZER.encode("go END"), [3], reason) == ["go ", ""]
