"""Drawn texts match their pattern from end to end."""

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.engine.errors import NotModelledError
from miles_sim.engine.grammar.regex import LONGEST, text_of_pattern

PATTERNS = [
    r"(yes|no): \d{2,3}",
    r"^[A-Z][a-z]+( [a-z]+)*\.$",
    r"[^abc\s]{4}",
    r"\w+@\w+\.(com|org)",
    r"a*?b+?c?",
    r"(?:\S+\s){2,}\D\W",
    r".{3}[^x]",
    r"(?i:hello)",
    r"[à-ü]{2}→",
    r"",
]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("seed", range(5))
def test_the_text_matches_as_a_whole(pattern: str, seed: int) -> None:
    assert re.fullmatch(pattern, text_of_pattern(pattern, Random(seed)))


@given(st.from_regex(r"[a-d]{1,3}[*+?]?(\|[a-d]{1,2})?(\{1,3\})?", fullmatch=True), st.integers(0, 9))
def test_any_simple_pattern_has_a_text(pattern: str, seed: int) -> None:
    try:
        compiled = re.compile(pattern)
    except re.error:
        return
    assert compiled.fullmatch(text_of_pattern(pattern, Random(seed)))


def test_equal_chance_gives_equal_texts_and_other_chance_others() -> None:
    texts = [text_of_pattern(r"[a-z]{12}", Random(seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("pattern", [r"(a)\1", r"a(?=b)", r"\bword", r"(?<!x)y", r"(a)?(?(1)b|c)"])
def test_what_has_no_drawn_text_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(NotModelledError, match=r"^regex: .*patterns without (groupref|assert|at)"):
        text_of_pattern(pattern, Random(0))


@pytest.mark.parametrize("pattern", ["(", "[", "a{2,1}", "*", "(" * 10_000])
def test_what_is_no_pattern_is_the_parsers_error(pattern: str) -> None:
    with pytest.raises(re.error):
        text_of_pattern(pattern, Random(0))


@pytest.mark.parametrize("pattern", ["a{1000000}", "((a{100}){100}){100}", "((){1000}){1000}"])
def test_a_text_without_end_is_refused(pattern: str) -> None:
    with pytest.raises(NotModelledError, match=f"texts of up to {LONGEST} characters"):
        text_of_pattern(pattern, Random(0))
