"""What no sample could be made of is refused when it arrives, while someone can still ask again."""

import base64
from typing import Any

import pytest

from miles_sim.rollout.engine_reply import check_recordable, is_logprob, read_json, short
from miles_sim.rollout.errors import UpstreamResponseError
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ByteTokenizer

CHATML = ByteTokenizer("chatml")


def check(meta_info: dict[str, Any], *, ids: tuple[int, ...] = (104, 105), finish: str = "stop", **fields: Any) -> None:
    settings = RolloutSettings(**{"speculative_algorithm": "EAGLE", **fields.pop("settings", {})})
    given: dict[str, Any] = {"prompt_tokens": 7, "offsets": {}, "tokenizer": CHATML, **fields}
    sound = {"prompt_tokens": 7, "completion_tokens": len(ids), "cached_tokens": 3, "weight_version": "1"}
    check_recordable({**sound, **meta_info}, ids, finish_reason=finish, settings=settings, **given)


def rows(count: int) -> str:
    return base64.b64encode(bytes(4 * count)).decode()


@pytest.mark.parametrize(
    ("meta_info", "named"),
    [
        ({"spec_num_correct_drafts": "3"}, r"meta_info\.spec_num_correct_drafts: '3'"),
        ({"spec_verify_ct": -1}, r"meta_info\.spec_verify_ct: -1"),
        ({"cached_tokens": 2.0}, r"meta_info\.cached_tokens: 2\.0"),
        ({"weight_version": 7}, r"meta_info\.weight_version: 7 is not a string"),
        ({"weight_versions": 7}, r"meta_info\.weight_versions: 7 is not a list"),
        ({"weight_versions": [{"version": None}]}, r"meta_info\.weight_version: None is not a string"),
        ({"routed_experts": "?"}, r"meta_info\.routed_experts: not base64"),
        ({"routed_experts": rows(9)}, r"meta_info\.routed_experts: 36 bytes are no 8 rows"),
        ({"indexer_topk": rows(7)}, r"meta_info\.indexer_topk: 28 bytes are no 8 rows"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(meta_info: dict[str, Any], named: str) -> None:
    with pytest.raises(UpstreamResponseError, match=named):
        check(meta_info)


def test_counters_that_are_not_collected_are_not_looked_at() -> None:
    check({"spec_verify_ct": -1}, settings={"speculative_algorithm": None})


def test_an_id_outside_the_vocabulary_is_refused_by_its_place() -> None:
    last = CHATML.vocab_size - 1
    check({}, ids=(0, last))
    with pytest.raises(UpstreamResponseError, match=rf"output_token_logprobs\[1\]\[1\]: {last + 1} is not in the voc"):
        check({}, ids=(0, last + 1))


def test_a_tokenizer_that_does_not_tell_its_size_refuses_no_id() -> None:
    check({}, ids=(10**9,), tokenizer=object())


@pytest.mark.parametrize(
    ("setting", "name"), [("routing_replay", "routed_experts"), ("indexer_replay", "indexer_topk")]
)
def test_rows_that_were_asked_for_must_be_there_but_with_an_abort(setting: str, name: str) -> None:
    check({name: rows(8)}, settings={setting: True})
    check({}, finish="abort", settings={setting: True})
    with pytest.raises(UpstreamResponseError, match=rf"meta_info\.{name}: missing, though it was asked for"):
        check({}, settings={setting: True})


def test_rows_are_counted_from_the_first_that_was_asked_for() -> None:
    check({"routed_experts": rows(3)}, offsets={"routed_experts_start_len": 5})
    with pytest.raises(UpstreamResponseError, match="32 bytes are no 3 rows"):
        check({"routed_experts": rows(8)}, offsets={"routed_experts_start_len": 5})


def test_json_in_another_coding_is_none() -> None:
    with pytest.raises(UpstreamResponseError, match="body: not JSON"):
        read_json('{"a": 1}'.encode("utf-16"))


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


def test_the_vocabulary_is_told_from_first_to_last() -> None:
    size = CHATML.vocab_size
    with pytest.raises(UpstreamResponseError, match=rf"{size} is not in the vocabulary, 0\.\.{size - 1}$"):
        check({}, ids=(0, size))
