"""Where a stop pattern is met, id by id, as the release looks for it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.engine.finish import Bounds, ending
from miles_sim.engine.stop_regex import first_match, longest_match
from miles_sim.tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()
STOP = TOKENIZER.text_stop_id


def met(text: str, *patterns: str, stops: tuple[str, ...] = ()) -> tuple[int, str] | None:
    return first_match(TOKENIZER.encode(text), patterns, stops, TOKENIZER)


@pytest.mark.parametrize(
    ("pattern", "longest"),
    [("abc", 3), ("a|bcd", 3), ("[xy]{2,4}.", 5), ("(ab)?$", 2), ("a*", 1 << 30), (r"(a)\1", 1 << 30), ("", 0)],
)
def test_the_longest_match_is_reckoned_as_the_release_does(pattern: str, longest: int) -> None:
    assert longest_match(pattern) == longest


def test_the_first_place_wins_then_the_order_of_the_patterns() -> None:
    assert met("one 12 two", r"two", r"\d+") == (5, r"\d+")
    assert met("abc", "b", "ab") == (2, "b")
    assert met("abc", "x") is None


def test_an_end_is_the_end_of_what_is_there() -> None:
    assert met("cache line", "e$") == (5, "e$")


def test_a_beginning_is_that_of_the_last_ids() -> None:
    assert met("xxab", "^xa") == (4, "^xa")
    assert met("xxab", "^xa", stops=("long enough",)) is None


@given(st.text("ab1 ", max_size=12), st.sampled_from([r"\d", "a+b", "(a|b) ", "[^a]{2,}", "b*1"]))
def test_the_place_is_the_first_prefix_that_matches(text: str, pattern: str) -> None:
    places = [n for n in range(1, len(text) + 1) if re.search(pattern, text[:n])]
    assert met(text, pattern) == ((places[0], pattern) if places else None)


def bounds(**fields: object) -> Bounds:
    return Bounds(**({"max_new_tokens": 1_000, "stop_ids": TOKENIZER.stop_ids} | fields))  # type: ignore[arg-type]


def test_a_pattern_ends_a_reply_and_is_named_as_it_was_asked() -> None:
    said = [*TOKENIZER.encode("abc 123"), STOP]
    end = ending(said, bounds(stop_regex=(r"\d{2}",)), TOKENIZER)
    assert (end.length, end.reason) == (6, {"type": "stop", "matched": r"\d{2}"})


def test_a_bound_or_stop_before_it_ends_first() -> None:
    said = [*TOKENIZER.encode("abc 123"), STOP]
    assert ending(said, bounds(stop_regex=(r"\d",), max_new_tokens=4), TOKENIZER).reason["type"] == "length"
    assert ending(said, bounds(stop_regex=(r"\d",), stop=("c",)), TOKENIZER).reason["matched"] == "c"
    assert ending(said, bounds(stop_regex=("x",)), TOKENIZER).reason["matched"] == STOP


def test_a_stop_string_at_the_same_place_ends_first() -> None:
    said = [*TOKENIZER.encode("abc"), STOP]
    assert ending(said, bounds(stop_regex=("b",), stop=("ab",)), TOKENIZER).reason["matched"] == "ab"
