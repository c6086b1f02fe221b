"""Which bound ends a generation, and what text is left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.engine.finish import Bounds, Trim, ending, text_of
from miles_sim.tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()
STOP = TOKENIZER.text_stop_id


def said(text: str) -> list[int]:
    return [*TOKENIZER.encode(text), STOP]


def bounds(**fields: object) -> Bounds:
    return Bounds(**({"max_new_tokens": 1_000, "stop_ids": TOKENIZER.stop_ids} | fields))  # type: ignore[arg-type]


def test_a_reply_ends_at_its_stop_token_which_is_counted() -> None:
    end = ending(said("abc"), bounds(), TOKENIZER)
    assert (end.length, end.reason) == (4, {"type": "stop", "matched": STOP})


def test_max_new_tokens_cuts_before_the_stop_token() -> None:
    end = ending(said("abc"), bounds(max_new_tokens=2), TOKENIZER)
    assert (end.length, end.reason) == (2, {"type": "length", "length": 2})


def test_a_stop_token_at_max_new_tokens_ends_by_length() -> None:
    end = ending(said("abc"), bounds(max_new_tokens=4), TOKENIZER)
    assert (end.length, end.reason) == (4, {"type": "length", "length": 4})


def test_nothing_may_be_said() -> None:
    end = ending(said("abc"), bounds(max_new_tokens=0), TOKENIZER)
    assert (end.length, end.reason["type"]) == (0, "length")


def test_a_stop_string_ends_with_the_id_that_completes_it() -> None:
    end = ending(said("one two three"), bounds(stop=("two",)), TOKENIZER)
    assert (end.length, end.reason) == (7, {"type": "stop", "matched": "two"})


def test_the_earliest_stop_string_wins_then_the_order_of_the_request() -> None:
    assert ending(said("abcd"), bounds(stop=("cd", "b")), TOKENIZER).reason["matched"] == "b"
    assert ending(said("abcd"), bounds(stop=("bc", "c")), TOKENIZER).reason["matched"] == "bc"


def test_a_stop_token_id_of_the_request_ends_the_reply() -> None:
    end = ending(said("abc"), bounds(stop_ids=TOKENIZER.stop_ids | {ord("b")}), TOKENIZER)
    assert (end.length, end.reason) == (2, {"type": "stop", "matched": ord("b")})


def test_releases_differ_in_what_wins_at_the_same_place() -> None:
    both = {"stop": ("<|im_end|>",)}
    assert ending(said("abc"), bounds(**both, stop_string_first=True), TOKENIZER).reason["matched"] == "<|im_end|>"
    assert ending(said("abc"), bounds(**both, stop_string_first=False), TOKENIZER).reason["matched"] == STOP


def test_length_wins_over_a_stop_string_at_the_same_place() -> None:
    assert ending(said("abc"), bounds(max_new_tokens=3, stop=("c",)), TOKENIZER).reason["type"] == "length"


def test_an_abort_leaves_what_was_said_by_then() -> None:
    end = ending(said("abc"), bounds(abort_after=2), TOKENIZER)
    assert end.length == 2
    assert end.reason == {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}


def test_an_abort_after_the_end_changes_nothing() -> None:
    assert ending(said("abc"), bounds(abort_after=4), TOKENIZER).reason["type"] == "stop"


@given(
    text=st.text("abc", max_size=30),
    limit=st.integers(0, 40),
    stop=st.lists(st.text("abc", min_size=1, max_size=3), max_size=3).map(tuple),
    abort=st.none() | st.integers(0, 40),
)
def test_an_ending_is_the_first_of_all_bounds(text: str, limit: int, stop: tuple[str, ...], abort: int | None) -> None:
    end = ending(said(text), bounds(max_new_tokens=limit, stop=stop, abort_after=abort), TOKENIZER)
    places = [limit, len(text) + 1] + [text.index(s) + len(s) for s in stop if s in text]
    if abort is not None:
        places.append(abort)
    assert end.length == min(places)


def test_text_is_without_the_matched_stop_unless_asked_for() -> None:
    token, string = {"type": "stop", "matched": STOP}, {"type": "stop", "matched": "two"}
    cut, whole = Trim(), Trim(no_stop_trim=True, skip_special_tokens=False)
    assert text_of(said("abc"), token, TOKENIZER, cut) == "abc"
    assert text_of(said("abc"), token, TOKENIZER, whole) == "abc<|im_end|>"
    assert text_of(TOKENIZER.encode("one two"), string, TOKENIZER, cut) == "one "
    assert text_of(TOKENIZER.encode("one two"), string, TOKENIZER, whole) == "one two"


@pytest.mark.parametrize(("behind", "told"), [(True, "one tw"), (False, "one two")])
def test_a_kept_stop_string_ends_the_text_or_the_id_that_completes_it_does(behind: bool, told: str) -> None:
    trim = Trim(no_stop_trim=True, behind_string=behind)
    assert text_of(TOKENIZER.encode("one two"), {"type": "stop", "matched": "tw"}, TOKENIZER, trim) == told


@pytest.mark.parametrize(("length_first", "kind"), [(True, "length"), (False, "stop")])
def test_where_the_last_id_stops_too_the_release_decides(length_first: bool, kind: str) -> None:
    tokenizer = ByteTokenizer()
    draft = [*tokenizer.encode("ab"), tokenizer.text_stop_id]
    bounds = Bounds(max_new_tokens=3, stop_ids=tokenizer.stop_ids, length_first=length_first)
    assert ending(draft, bounds, tokenizer).reason["type"] == kind
    string = Bounds(max_new_tokens=2, stop=("b",), length_first=length_first)
    end = ending(draft, string, tokenizer)
    assert (end.length, end.reason["type"]) == (2, kind)
