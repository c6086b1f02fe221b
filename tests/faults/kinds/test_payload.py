"""Each payload kind spoils what it says, on every route and release that tells it, and nothing else."""

import base64
import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from miles_sim.faults.catalogue import kinds
from miles_sim.faults.strike import Answer, CannotStrike

PAYLOAD = [name for name, kind in kinds().items() if kind.layer == "payload"]
ROUTES = ("chat", "calls", "completion", "generate")
PROFILES = sorted(
    path.stem for path in (Path(__file__).parents[3] / "fixtures" / "wire").glob("*.yaml") if path.stem != "keys"
)


def places(document: Any, path: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    """Each leaf of a document by its place."""
    if isinstance(document, dict) and document:
        return {k: v for key, value in document.items() for k, v in places(value, (*path, key)).items()}
    if isinstance(document, list) and document:
        return {k: v for n, value in enumerate(document) for k, v in places(value, (*path, n)).items()}
    return {path: document}


@pytest.fixture(scope="module")
def changed(spoiled: Any) -> Any:
    """Leaves that a kind changes or adds, and those it takes away, which are `...`."""

    def compare(kind: str, answer: Answer, **params: Any) -> dict[tuple[Any, ...], Any]:
        before, after = places(json.loads(answer.body)), places(spoiled(kind, answer, **params))
        gone = dict.fromkeys(before.keys() - after.keys(), ...)
        return gone | {k: v for k, v in after.items() if k not in before or repr(before[k]) != repr(v)}

    return compare


@pytest.mark.parametrize("kind", [name for name in PAYLOAD if name != "payload-response-id-duplicate"])
def test_a_kind_strikes_some_route_of_some_release(kind: str, changed: Any, reply: Any) -> None:
    struck = 0
    for profile in PROFILES:
        for route in ROUTES:
            with suppress(CannotStrike):
                struck += bool(changed(kind, reply(route, profile)))
    assert struck, "it can strike nothing at all"


META = ("choices", 0, "meta_info")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("payload-logprob-nan", math.nan),
        ("payload-logprob-infinite", -math.inf),
        ("payload-logprob-positive", 0.25),
        ("payload-logprob-null", None),
        ("payload-logprob-string", "-0.25"),
    ],
)
def test_a_logprob_is_spoiled_wherever_it_is_spelled(kind: str, value: Any, changed: Any, reply: Any) -> None:
    chat = changed(kind, reply("chat"), position=2)
    pair, content = (*META, "output_token_logprobs", 2, 0), ("choices", 0, "logprobs", "content", 2, "logprob")
    assert repr(chat) == repr({pair: value, content: value}) or repr(chat) == repr({content: value, pair: value})
    flat = changed(kind, reply("completion"), position=2)
    assert repr(flat) == repr({("choices", 0, "logprobs", "token_logprobs", 2): value})
    direct = changed(kind, reply("generate"), position=2)
    assert repr(direct) == repr({("meta_info", "output_token_logprobs", 2, 0): value})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("payload-id-string", str),
        ("payload-id-float", float),
        ("payload-id-negative", lambda true: -1),
        ("payload-id-null", lambda true: None),
        ("payload-id-foreign", lambda true: 2_000_000_000),
    ],
)
def test_an_id_is_spoiled_in_both_places_of_generate(kind: str, value: Any, changed: Any, reply: Any) -> None:
    answer = reply("generate")
    true = json.loads(answer.body)["output_ids"][-1]
    last = len(json.loads(answer.body)["output_ids"]) - 1
    found = changed(kind, answer, position=-1)
    expected = {("output_ids", last): value(true), ("meta_info", "output_token_logprobs", last, 1): value(true)}
    assert {k: repr(v) for k, v in found.items()} == {k: repr(v) for k, v in expected.items()}


def test_ids_that_contradict_differ_in_one_place_alone(changed: Any, reply: Any) -> None:
    assert [place[0] for place in changed("payload-ids-contradicting", reply("generate"))] == ["output_ids"]


@pytest.mark.parametrize(
    ("kind", "by"), [("payload-logprobs-short", -1), ("payload-logprobs-long", 1), ("payload-logprobs-empty", None)]
)
def test_lists_of_logprobs_are_of_another_length(kind: str, by: int | None, reply: Any, spoiled: Any) -> None:
    true, found = (
        d["meta_info"]["output_token_logprobs"]
        for d in (json.loads(reply("generate").body), spoiled(kind, reply("generate")))
    )
    assert len(found) == (0 if by is None else len(true) + by)


def test_counts_are_spoiled_beside_the_usage_that_says_the_same(changed: Any, reply: Any) -> None:
    true = json.loads(reply("chat").body)["usage"]
    assert changed("payload-completion-tokens-more", reply("chat")) == {
        (*META, "completion_tokens"): true["completion_tokens"] + 1,
        ("usage", "completion_tokens"): true["completion_tokens"] + 1,
    }
    assert changed("payload-prompt-tokens-string", reply("generate")) == {("meta_info", "prompt_tokens"): "2"}
    assert {place[0] for place in changed("payload-usage-contradicting", reply("chat"))} == {"usage"}


@pytest.mark.parametrize(
    ("kind", "chat", "generate"),
    [
        ("payload-choices-missing", None, {}),
        ("payload-choices-empty", [], []),
        ("payload-choices-null", [None], None),
    ],
)
def test_choices_are_gone_on_each_route(kind: str, chat: Any, generate: Any, reply: Any, spoiled: Any) -> None:
    assert spoiled(kind, reply("chat")).get("choices") == chat
    assert spoiled(kind, reply("generate")) == generate


def test_two_choices_are_two_generations_on_generate(reply: Any, spoiled: Any) -> None:
    found = spoiled("payload-choices-two", reply("chat"))["choices"]
    assert [choice["index"] for choice in found] == [0, 1]
    one, other = spoiled("payload-choices-two", reply("generate"))
    assert one == other == json.loads(reply("generate").body)


@pytest.mark.parametrize(
    ("kind", "chat", "generate"),
    [
        ("payload-finish-unknown", "paused", {"type": "paused"}),
        ("payload-finish-null", None, None),
        ("payload-finish-object", {"type": "stop", "matched": None}, "stop"),
    ],
)
def test_finish_reasons_are_spoiled_where_a_route_tells_them(
    kind: str, chat: Any, generate: Any, reply: Any, spoiled: Any
) -> None:
    assert spoiled(kind, reply("chat"))["choices"][0]["finish_reason"] == chat
    assert spoiled(kind, reply("generate"))["meta_info"]["finish_reason"] == generate


def test_an_id_is_that_of_the_first_reply_in_all_its_places(reply: Any) -> None:
    known = kinds()["payload-response-id-duplicate"]
    strike = known.effect(known.params(), None)
    found = json.loads(strike.altered(reply("chat"), reply("completion")).body)
    first = json.loads(reply("completion").body)["id"]
    assert found["id"] == found["choices"][0]["meta_info"]["id"] == first
    with pytest.raises(CannotStrike, match="no reply was given before"):
        strike.altered(reply("chat"), None)


@pytest.mark.parametrize(
    ("kind", "rows"), [("payload-rows-short", -1), ("payload-rows-long", 1), ("payload-rows-cut", -1 / 16)]
)
@pytest.mark.parametrize("route", ["chat", "generate"])
def test_rows_are_too_few_or_too_many_by_one(kind: str, rows: float, route: str, reply: Any, spoiled: Any) -> None:
    def raw(document: Any) -> int:
        meta = document["choices"][0]["meta_info"] if route == "chat" else document["meta_info"]
        return len(base64.b64decode(meta["routed_experts"]))

    row = 2 * 2 * 4
    assert raw(spoiled(kind, reply(route))) - raw(json.loads(reply(route).body)) == rows * row


def test_counters_of_every_spelling_are_spoiled(changed: Any, reply: Any, spoiled: Any) -> None:
    for profile, names in (
        ("sglang-0.5.6", {"spec_accept_token_num", "spec_draft_token_num", "spec_verify_ct"}),
        ("sglang-0.5.11", {"spec_accepted_drafts", "spec_proposed_drafts", "spec_verify_ct"}),
        ("sglang-0.5.23", {"spec_num_correct_drafts", "spec_num_proposed_drafts", "spec_verify_ct"}),
    ):
        found = changed("payload-spec-negative", reply("generate", profile))
        assert {place[-1] for place in found} == names
        assert all(value < 0 for value in found.values())
    meta = spoiled("payload-spec-accepted-more", reply("chat"))["choices"][0]["meta_info"]
    assert meta["spec_num_correct_drafts"] > meta["spec_num_proposed_drafts"]
    assert spoiled("payload-spec-no-steps", reply("chat"))["choices"][0]["meta_info"]["spec_verify_ct"] == 0


def test_versions_go_back_or_change_midway_with_their_spans(reply: Any, spoiled: Any) -> None:
    back = spoiled("payload-version-backwards", reply("chat"))
    assert back["metadata"]["weight_version"] == back["choices"][0]["meta_info"]["weight_version"] == "41"
    assert [span["version"] for span in back["choices"][0]["meta_info"]["weight_versions"]] == ["41"]
    midway = spoiled("payload-version-midway", reply("generate"), version="43")["meta_info"]
    ends = [(span["version"], span["start"], span["end"]) for span in midway["weight_versions"]]
    (_, _, middle), last = ends
    assert ends == [("42", 0, middle), ("43", middle, midway["completion_tokens"])]
    assert last[1] > 0


def test_messages_and_calls_are_spoiled(reply: Any, spoiled: Any) -> None:
    assert spoiled("payload-content-foreign", reply("chat"))["choices"][0]["message"]["content"] == "All tests pass."
    assert spoiled("payload-message-role", reply("chat"))["choices"][0]["message"]["role"] == "user"
    (call,) = spoiled("payload-tool-arguments-object", reply("calls"))["choices"][0]["message"]["tool_calls"]
    assert call["function"]["arguments"] == {"spelled": "{}"}
    with pytest.raises(CannotStrike, match="tool calls, beside which null"):
        spoiled("payload-message-content-null", reply("calls"))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(503, b"{}"), "the engine answered with status 503"),
        (Answer(200, b"data: {}\n\n", (("content-type", "text/event-stream"),)), "text/event-stream, not one JSON"),
        (Answer(200, b"<html>"), "the body is no JSON"),
        (Answer(200, b'{"data": []}'), "the body is no generation"),
        (Answer(200, b"[]"), "the body is no generation"),
    ],
)
def test_what_is_no_reply_cannot_be_spoiled(answer: Answer, reason: str, spoiled: Any) -> None:
    for kind in PAYLOAD:
        with pytest.raises(CannotStrike, match=reason):
            spoiled(kind, answer)
