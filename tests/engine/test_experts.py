"""Routed experts and indexer rows: recognisable, reproducible, and as SGLang puts them on the wire."""

import base64

import numpy as np
import pytest
from numpy.typing import NDArray

from miles_sim.engine.errors import RequestError
from miles_sim.engine.experts import Experts, Indexer, check_start, experts_truth, payload
from miles_sim.ledger import WeightSpan
from miles_sim.rows import RowsTruth, rows

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
PROMPT = 6


def truth(settings: Experts | Indexer, *, seed: int = 1, version: str = "v1", **rest: object) -> RowsTruth:
    made = experts_truth(settings, seed=seed, prompt_tokens=PROMPT, weight_version=version, **rest)  # type: ignore[arg-type]
    assert made is not None
    return made


def same(left: "NDArray[np.int32]", right: "NDArray[np.int32]") -> list[bool]:
    """Whether each row is the same on both sides."""
    return [bool((a == b).all()) for a, b in zip(left, right, strict=True)]


def test_there_is_a_row_for_each_transition_from_the_start_on() -> None:
    settings = Experts(layers=3, topk=2, experts=8)
    whole = rows(truth(settings), IDS)
    assert whole.shape == (len(IDS) - 1, 3, 2)
    assert whole.dtype == np.int32
    assert all(same(rows(truth(settings), IDS, start=4), whole[4:]))
    assert rows(truth(settings), IDS, start=len(IDS)).shape == (0, 3, 2)
    assert rows(truth(settings), []).shape == (0, 3, 2)


def test_a_row_names_each_expert_once() -> None:
    drawn = rows(truth(Experts(layers=2, topk=6, experts=6)), list(range(200)))
    assert {len(set(row.tolist())) for row in drawn.reshape(-1, 6)} == {6}
    assert set(np.unique(drawn)) == set(range(6))


def test_indexer_rows_are_positions_so_far_and_then_minus_one() -> None:
    drawn = rows(truth(Indexer(layers=2, topk=4)), IDS)
    for place, row in enumerate(drawn.tolist()):
        for layer in row:
            seen = min(place + 1, 4)
            assert len(set(layer[:seen])) == seen
            assert all(0 <= value <= place for value in layer[:seen])
            assert layer[seen:] == [-1] * (4 - seen)


@pytest.mark.parametrize("settings", [Experts(layers=4, topk=4, experts=64), Indexer(layers=16, topk=8)])
def test_rows_tell_context_position_weights_and_engine_apart(settings: Experts | Indexer) -> None:
    drawn = rows(truth(settings), IDS)
    other_first = rows(truth(settings), [7, *IDS[1:]])
    swapped = rows(truth(settings), [IDS[1], IDS[0], *IDS[2:]])
    skip = 1 if isinstance(settings, Indexer) else 0  # an indexer has one choice at position 0
    assert not any(same(drawn, other_first)[skip:])
    assert not any(same(drawn, swapped)[skip:])
    assert not any(same(drawn, rows(truth(settings, version="v2"), IDS))[skip:])
    assert not any(same(drawn, rows(truth(settings, seed=2), IDS))[skip:])
    assert not any(same(drawn[1:], drawn[:-1]))


def test_equal_beginnings_have_equal_rows() -> None:
    settings = Experts()
    assert all(same(rows(truth(settings), IDS)[:4], rows(truth(settings), [*IDS[:5], 0, 0])[:4]))


def test_a_prefill_of_sampled_ids_is_recognisable_where_asked_for() -> None:
    settings = Experts(layers=4, topk=4, experts=64, prefill="other")
    first = rows(truth(settings), IDS)
    later = experts_truth(settings, seed=1, prompt_tokens=len(IDS), weight_version="v1")
    assert later is not None
    assert same(first, rows(later, IDS)) == [True] * PROMPT + [False] * (len(IDS) - 1 - PROMPT)


def test_weights_that_change_on_the_way_change_the_rows_of_the_passes_after_it() -> None:
    settings = Experts(layers=4, topk=4, experts=64)
    spans = (WeightSpan(version="v1", start=0, end=2), WeightSpan(version="v2", start=2, end=5))
    drawn = rows(truth(settings, version="v2", spans=spans), IDS)
    old, new = rows(truth(settings), IDS), rows(truth(settings, version="v2"), IDS)
    first_new = PROMPT - 1 + 2
    assert same(drawn, old) == [at < first_new for at in range(len(IDS) - 1)]
    assert same(drawn, new) == [at >= first_new for at in range(len(IDS) - 1)]


def test_the_payload_is_base64_of_little_endian_int32() -> None:
    made = truth(Experts(layers=2, topk=3, experts=5))
    raw = base64.b64decode(payload(made, IDS, start=3), validate=True)
    assert (np.frombuffer(raw, dtype="<i4").reshape(-1, 2, 3) == rows(made, IDS, start=3)).all()


def test_more_choices_than_experts_are_refused() -> None:
    with pytest.raises(ValueError, match="topk: 9 is more than the 8 experts"):
        Experts(topk=9, experts=8)


def test_a_start_outside_of_the_prompt_is_refused_in_sglangs_words() -> None:
    check_start(0, 5)
    check_start(5, 5)
    with pytest.raises(RequestError, match=r"routed_experts_start_len=-1 is lower than 0\."):
        check_start(-1, 5)
    with pytest.raises(
        RequestError, match=r"=6 is higher than the number of input tokens len\(req\.origin_input_ids\)=5"
    ):
        check_start(6, 5)
