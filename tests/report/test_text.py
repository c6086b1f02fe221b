import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.report.text import beside, columns, cut, digest, number, runs, scrub


@given(st.text(), st.integers(min_value=1, max_value=200))
def test_a_cut_text_is_one_line_and_no_longer_than_asked(text: str, width: int) -> None:
    told = cut(text, width)
    assert len(told) <= width
    assert "\n" not in told
    assert "\r" not in told


def test_a_cut_text_keeps_both_ends() -> None:
    assert cut("the beginning of it all and then its end", 20) == "the beginning…ts end"


@given(st.lists(st.integers(min_value=0, max_value=1)))
def test_runs_say_the_whole_mask(mask: list[int]) -> None:
    told = runs(mask)
    back = [int(run[0]) for run in told.split() if run != "–" for _ in range(int(run[2:]))]
    assert back == mask


@given(st.lists(st.integers()), st.lists(st.integers()))
def test_digests_of_unequal_arrays_differ(left: list[int], right: list[int]) -> None:
    assert (digest(left) == digest(right)) == (left == right)


def test_a_digest_tells_an_absent_array_from_an_empty_one() -> None:
    assert digest(None) != digest([])


@pytest.mark.parametrize(
    ("value", "told"), [(None, "unavailable"), (0.0, "0"), (1.87123, "1.871"), (12345678, "12345678"), (1, "1")]
)
def test_a_figure_that_is_not_there_is_not_zero(value: float | None, told: str) -> None:
    assert number(value) == told


@pytest.mark.parametrize(
    ("found", "true", "told"),
    [
        (7, 7, "7"),
        (0, 7, "0 (true: 7)"),
        (0.0, None, "0 (true: unavailable)"),
        (None, None, "unavailable"),
        (0.1 + 0.2, 0.3, "0.3"),
    ],
)
def test_the_truth_stands_beside_a_figure_only_where_they_differ(
    found: float | None, true: float | None, told: str
) -> None:
    assert beside(found, true) == told


def test_what_differs_from_run_to_run_is_scrubbed() -> None:
    plain, dashed = "0f8fad5bd9cb469fa16570867728950e", "0f8fad5b-d9cb-469f-a165-70867728950e"
    assert scrub(f"POST http://127.0.0.1:40123/sessions/{plain} failed") == "POST ‹url› failed"
    assert scrub(f"session {plain}, request {dashed}: gone") == "session ‹id›, request ‹id›: gone"
    assert scrub("step 12 of 4096 added 7") == "step 12 of 4096 added 7"


def test_columns_align_and_end_without_blanks() -> None:
    assert columns([["who", "ids"], ["a", "5"], ["long", "12"]]) == ["who    ids", "a        5", "long    12"]
    assert columns([]) == []
