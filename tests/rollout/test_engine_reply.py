"""What a reply's value looks like in an error: whole if it is short, else its beginning."""

from typing import Any

import pytest

from miles_sim.rollout.engine_reply import is_logprob, read_json, short
from miles_sim.rollout.errors import UpstreamResponseError


def test_a_value_in_an_error_is_at_most_eighty_characters() -> None:
    assert short("a" * 78) == repr("a" * 78)
    assert short("a" * 79) == "'" + "a" * 76 + "..."
    assert [len(short("a" * size)) for size in (78, 79, 5000)] == [80, 80, 80]


@pytest.mark.parametrize(
    ("value", "holds"),
    [(0, True), (-1.5, True), (1e-6, True), (2e-6, False), (float("nan"), False), (float("-inf"), False)],
)
def test_a_logprob_is_finite_and_no_more_than_rounding_above_zero(value: float, holds: bool) -> None:
    assert is_logprob(value) is holds


@pytest.mark.parametrize("value", [True, None, "0", [0]])
def test_what_is_no_number_is_no_logprob(value: Any) -> None:
    assert not is_logprob(value)


def test_json_to_the_letter_is_told_from_json_to_some() -> None:
    assert read_json(b'{"a": 1}') == ({"a": 1}, True)
    found, strict = read_json(b'{"a": Infinity}')
    assert (found, strict) == ({"a": float("inf")}, False)
    for body in (b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(UpstreamResponseError, match=r"^body: not JSON: "):
            read_json(body)
