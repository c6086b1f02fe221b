"""Transport kinds: how an exchange ends, and what of it the engine has heard and the client been handed."""

from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from miles_sim.faults.catalogue import kind_named, kinds
from miles_sim.faults.strike import Answer, CannotStrike, Strike

TRANSPORT = [name for name, kind in kinds().items() if kind.layer == "transport"]
TRUE = Answer(200, b"0123456789")


def struck(name: str, **params: Any) -> Strike:
    kind = kind_named(f"transport-{name}")
    strike: Strike = kind.effect(kind.params.model_validate(params), Random(0))
    return strike


@pytest.mark.parametrize(
    ("name", "deliveries", "ending", "headers"),
    [
        ("refused", 0, "refused", False),
        ("reset-before", 0, "reset", False),
        ("reset-delivered", 1, "reset", False),
        ("reset-headers", 1, "reset", True),
        ("reset-body", 1, "reset", True),
        ("closed-before", 0, "closed", False),
        ("closed-delivered", 1, "closed", False),
        ("stall-before", 0, "stalled", False),
        ("stall-delivered", 1, "stalled", False),
        ("stall-headers", 1, "stalled", True),
        ("stall-body", 1, "stalled", True),
        ("cut-byte", 1, "closed", True),
        ("cut-fraction", 1, "closed", True),
        ("cut-chunk", 1, "closed", True),
        ("trickle", 1, "whole", False),
        ("duplicate", 2, "whole", False),
        ("duplicate-at-once", 2, "whole", False),
        ("stale", 1, "whole", False),
    ],
)
def test_an_exchange_ends_as_its_kind_says(name: str, deliveries: int, ending: str, headers: bool) -> None:
    strike = struck(name)
    assert (strike.deliveries, strike.ending, strike.headers) == (deliveries, ending, headers)


def test_every_kind_is_told_of_above() -> None:
    (mark,) = test_an_exchange_ends_as_its_kind_says.pytestmark  # type: ignore[attr-defined]
    assert sorted(f"transport-{row[0]}" for row in mark.args[1]) == sorted(TRANSPORT)


@pytest.mark.parametrize(
    ("name", "params", "arrives"),
    [
        ("reset-body", {"bytes": 4}, 4),
        ("stall-body", {"bytes": 0}, 0),
        ("cut-byte", {"bytes": 9}, 9),
        ("cut-chunk", {"chunks": 3, "chunk_bytes": 3}, 9),
    ],
)
def test_so_many_bytes_arrive_and_never_all(name: str, params: dict[str, int], arrives: int) -> None:
    strike = struck(name, **params)
    assert strike.body_bytes == arrives
    assert strike.altered(TRUE, None) == TRUE
    with pytest.raises(CannotStrike, match=f"the body has {arrives} bytes, no more than the {arrives} that arrive"):
        strike.altered(Answer(200, TRUE.body[:arrives]), None)


@pytest.mark.parametrize(("share", "length", "arrives"), [(0.5, 10, 5), (0.99, 10, 9), (0.0, 10, 0), (0.5, 1, 0)])
def test_a_share_of_the_body_is_rounded_down(share: float, length: int, arrives: int) -> None:
    assert struck("cut-fraction", fraction=share).arriving(length) == arrives


def test_copies_go_one_after_the_other_or_at_once() -> None:
    assert (struck("duplicate", copies=5).deliveries, struck("duplicate").at_once) == (5, False)
    assert struck("duplicate-at-once").at_once is True


def test_a_stale_answer_is_the_first_one() -> None:
    first = Answer(200, b"first")
    assert struck("stale").altered(TRUE, first) == first
    with pytest.raises(CannotStrike):
        struck("stale").altered(TRUE, None)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("cut-byte", {"bytes": -1}),
        ("cut-chunk", {"chunk_bytes": 0}),
        ("duplicate", {"copies": 1}),
        ("refused", {"x": 1}),
    ],
)
def test_parameters_out_of_range_are_refused(name: str, params: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        struck(name, **params)
