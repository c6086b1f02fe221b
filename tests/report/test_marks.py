"""Marks below the tokens that a finding means: under the right characters, whatever the tokens are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.report.marks import WINDOW, mark_lines, marked_sample
from miles_sim.tokenizer import ByteTokenizer
from miles_sim.verify.report import Finding
from miles_sim.verify.rule import Case

TOKENIZER = ByteTokenizer()


def _finding(**more: object) -> Finding:
    return Finding.model_validate({"where": "somewhere", "message": "wrong", **more})


@given(st.lists(st.integers(0, TOKENIZER.vocab_size + 5), min_size=1, max_size=80), st.integers(0, 79))
def test_the_carets_stand_below_the_piece_that_is_meant(ids: list[int], place: int) -> None:
    place %= len(ids)
    text, carets = mark_lines(ids, 100, ((100 + place, 101 + place),), TOKENIZER)
    assert text.startswith(f"    at {100 + place}  ")
    assert set(carets) == {" ", "^"}
    assert carets.index("^") < len(text)
    assert carets.rstrip().count("^") == len(carets.strip())
    assert len(text) <= WINDOW + len("    at 999  …")


def test_a_character_of_several_ids_is_shown_whole_and_marked_by_any_of_them() -> None:
    ids = TOKENIZER.encode("a✓b")
    assert len(ids) == 5
    for place in (1, 2, 3):
        text, carets = mark_lines(ids, 0, ((place, place + 1),), TOKENIZER)
        assert text[carets.index("^")] == "✓"


def test_nothing_is_written_below_a_segment_that_is_not_meant() -> None:
    assert mark_lines([1, 2, 3], 10, ((13, 20), (0, 10)), TOKENIZER) == []


def test_stretches_that_reach_beyond_a_segment_are_counted_as_far_as_it_goes() -> None:
    _, carets = mark_lines(TOKENIZER.encode("abcd"), 10, ((12, 99),), TOKENIZER)
    assert carets.endswith("^^  2 ids")


@pytest.mark.parametrize("place", [{}, {"rollout": 0}, {"rollout": 0, "sample": 9}, {"rollout": 5, "sample": 0}])
def test_a_finding_about_no_sample_shows_none(case: Case, place: dict[str, int]) -> None:
    assert marked_sample(case, _finding(**place)) == []


def test_each_segment_that_a_finding_means_is_marked_once(case: Case) -> None:
    lines = marked_sample(case, _finding(rollout=0, sample=1, tokens=((20, 40),)))
    assert sum(line.lstrip().startswith("at ") for line in lines) == sum("^" in line for line in lines) == 3
