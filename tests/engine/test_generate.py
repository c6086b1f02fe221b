"""`/generate` answers singles, batches and streams as each release does, and all its parts agree."""

import base64
import json
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest

from miles_sim.engine import profiles
from miles_sim.engine.engine import Engine
from miles_sim.engine.flight import at_once

Make = Callable[..., Engine]
Post = Callable[..., Any]
PROFILES = profiles.names()
RELEASE = {name: 10 if name.startswith("miles") else int(name.rpartition(".")[2]) for name in PROFILES}


@pytest.mark.parametrize("profile", PROFILES)
def test_one_prompt_is_one_object_and_several_answers_a_list(make_engine: Make, post: Post, profile: str) -> None:
    engine = make_engine(profile=profile)
    one = post(engine, "/generate", text="hi").json
    assert list(one) == ["text", "output_ids", "meta_info"]
    several: list[tuple[dict[str, Any], int]] = [
        ({"text": ["hi"]}, 1),
        ({"input_ids": [[5, 6], [7]]}, 2),
        ({"text": "hi", "sampling_params": {"n": 3}}, 3),
        ({"text": ["hi", "ho"], "sampling_params": [{"n": 2}, {"n": 2}]}, 4),
        ({"text": []}, 0),
    ]
    for asked, count in several:
        assert len(post(engine, "/generate", **asked).json) == count


def test_text_and_its_ids_are_the_same_question(make_engine: Make, post: Post) -> None:
    engine = make_engine()
    ids = engine.tokenizer.encode("go <|im_end|>")
    first = post(engine, "/generate", text="go <|im_end|>").json
    again = make_engine()
    assert post(again, "/generate", input_ids=ids).json == first
    assert engine.generations[0].prompt_ids == tuple(ids)
    assert engine.generations[0].endpoint == "generate"


def test_ids_win_over_text(make_engine: Make, post: Post) -> None:
    engine = make_engine()
    post(engine, "/generate", text="hi", input_ids=[5, 6])
    assert engine.generations[0].prompt_ids == (5, 6)


def test_answers_of_a_batch_stand_prompt_by_prompt(make_engine: Make, post: Post) -> None:
    engine = make_engine()
    answers = post(engine, "/generate", input_ids=[[5, 6], [7, 8, 9]], sampling_params={"n": 2}).json
    assert [answer["meta_info"]["prompt_tokens"] for answer in answers] == [2, 2, 3, 3]
    assert len({answer["meta_info"]["id"] for answer in answers}) == 4


def test_ids_of_requests_are_kept_numbered_or_drawn(make_engine: Make, post: Post) -> None:
    engine = make_engine()

    def ids(**asked: Any) -> list[str]:
        answer = post(engine, "/generate", **asked).json
        return [one["meta_info"]["id"] for one in (answer if isinstance(answer, list) else [answer])]

    assert ids(text="hi", rid="r") == ["r"]
    assert ids(text=["hi", "ho"], rid="r") == ["r_0", "r_1"]
    assert ids(text=["hi", "ho"], rid=["a", "b"]) == ["a", "b"]
    assert not {"r", "r_0"} & set(ids(text="hi", rid="r", sampling_params={"n": 2}))


def test_the_default_bound_is_128_and_null_is_none(make_engine: Make, post: Post) -> None:
    engine = make_engine(default_reply={"tokens": 300})
    assert len(post(engine, "/generate", text="hi").json["output_ids"]) == 128
    assert len(post(engine, "/generate", text="hi", sampling_params={"max_new_tokens": None}).json["output_ids"]) == 301


@pytest.mark.parametrize("profile", PROFILES)
def test_logprobs_of_the_prompt_start_where_they_are_asked_for(make_engine: Make, post: Post, profile: str) -> None:
    engine = make_engine(profile=profile)
    ids = [10, 20, 30, 40]

    def told(**asked: Any) -> list[list[Any]]:
        meta = post(engine, "/generate", input_ids=ids, return_logprob=True, **asked).json["meta_info"]
        found: list[list[Any]] = meta["input_token_logprobs"]
        return found

    whole, part = told(logprob_start_len=0), told(logprob_start_len=2)
    assert [token for _, token, _ in whole] == ids
    assert whole[0][0] is None
    assert all(logprob < 0 for logprob, _, _ in whole[1:])
    assert part == [[None, 30, None], whole[3]]
    assert told() == ([[None, 40, None]] if profile == "sglang-0.5.6" else [])


def test_logprobs_of_the_prompt_depend_on_what_stands_before(make_engine: Make, post: Post) -> None:
    def last(*ids: int) -> float:
        asked = {"input_ids": list(ids), "return_logprob": True, "logprob_start_len": 0}
        found: float = post(make_engine(), "/generate", **asked).json["meta_info"]["input_token_logprobs"][-1][0]
        return found

    assert last(1, 2, 3) == last(1, 2, 3)
    assert len({last(1, 2, 3), last(2, 1, 3), last(1, 2, 4)}) == 3


def test_what_has_logprobs_does_not_come_from_the_cache(make_engine: Make, post: Post) -> None:
    engine = make_engine()

    def cached(**asked: Any) -> int:
        count: int = post(engine, "/generate", input_ids=[1, 2, 3, 4, 5], **asked).json["meta_info"]["cached_tokens"]
        return count

    assert cached() == 0
    assert cached() == 4
    assert cached(return_logprob=True, logprob_start_len=2) == 2
    assert cached(return_logprob=True, logprob_start_len=0) == 0
    assert cached(return_logprob=True) == 4


def test_alternatives_are_one_distribution_whatever_part_is_asked_for(make_engine: Make, post: Post) -> None:
    engine = make_engine()

    def told(engine: Engine, **asked: Any) -> dict[str, Any]:
        fields = {"input_ids": [10, 20, 30], "return_logprob": True, "logprob_start_len": 0, **asked}
        meta: dict[str, Any] = post(engine, "/generate", **fields).json["meta_info"]
        return meta

    five = told(engine, top_logprobs_num=5)
    two = told(make_engine(), top_logprobs_num=2, token_ids_logprob=[20, 7])
    for side in ("input", "output"):
        assert [row and row[:2] for row in five[f"{side}_top_logprobs"]] == two[f"{side}_top_logprobs"]
        assert len(five[f"{side}_top_logprobs"]) == len(five[f"{side}_token_logprobs"])
        for triple, row, chosen in zip(
            five[f"{side}_token_logprobs"],
            five[f"{side}_top_logprobs"],
            two[f"{side}_token_ids_logprobs"],
            strict=True,
        ):
            if row is None:
                assert (triple[0], chosen) == (None, None)
                continue
            assert [logprob for logprob, _, _ in row] == sorted((entry[0] for entry in row), reverse=True)
            assert len({token for _, token, _ in row}) == 5
            assert sum(np.exp(entry[0]) for entry in row) <= 1.0001
            assert [token for _, token, _ in chosen] == [20, 7]
            by_id = {token: logprob for logprob, token, _ in row} | {triple[1]: triple[0]}
            for logprob, token, _ in chosen:
                assert by_id.get(token, logprob) == logprob
    assert two["input_top_logprobs"][0] is None


def test_texts_come_only_where_they_are_asked_for(make_engine: Make, post: Post) -> None:
    asked = {"input_ids": [104, 105], "return_logprob": True, "logprob_start_len": 0}
    bare = post(make_engine(), "/generate", **asked).json["meta_info"]
    told = post(make_engine(), "/generate", return_text_in_logprobs=True, **asked).json["meta_info"]
    assert [text for _, _, text in bare["input_token_logprobs"]] == [None, None]
    assert [text for _, _, text in told["input_token_logprobs"]] == ["h", "i"]


@pytest.mark.parametrize("profile", PROFILES)
def test_prompt_ids_come_back_from_releases_that_know_the_wish(make_engine: Make, post: Post, profile: str) -> None:
    engine = make_engine(profile=profile)
    answer = post(engine, "/generate", text="hi", return_prompt_token_ids=True).json
    if RELEASE[profile] < 13 and not profile.startswith("miles"):
        assert "prompt_token_ids" not in answer
    else:
        assert answer["prompt_token_ids"] == list(engine.generations[0].prompt_ids)


def test_rows_start_where_they_are_asked_for(make_engine: Make, post: Post) -> None:
    engine = make_engine(experts={"layers": 3, "topk": 2}, indexer={"layers": 2, "topk": 5})

    def rows(**asked: Any) -> dict[str, "np.typing.NDArray[np.int32]"]:
        meta = post(engine, "/generate", input_ids=[5, 6, 7], **asked).json["meta_info"]
        names = {"routed_experts": (3, 2), "indexer_topk": (2, 5)}
        return {
            name: np.frombuffer(base64.b64decode(meta[name]), dtype="<i4").reshape(-1, *shape)
            for name, shape in names.items()
            if name in meta
        }

    assert rows() == {}
    whole = rows(return_routed_experts=True, return_indexer_topk=True)
    count = 3 + len(engine.generations[-1].output_ids) - 1
    assert [len(found) for found in whole.values()] == [count, count]
    part = rows(return_routed_experts=True, routed_experts_start_len=2, sampling_params={"sampling_seed": 1})
    assert (part["routed_experts"][0] == whole["routed_experts"][2]).all()


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("incremental", [False, True])
def test_a_stream_tells_what_the_release_tells(make_engine: Make, post: Post, profile: str, incremental: bool) -> None:
    engine = make_engine(
        profile=profile, incremental_streaming=incremental, speculative={}, default_reply={"tokens": 12}
    )
    pieces = post(engine, "/generate", text="hi", stream=True, return_logprob=True).events
    truth = engine.generations[0]
    assert len(pieces) > 3
    new = engine.profile.generate.incremental if incremental else ()
    ids, text, logprobs = ([piece[key] for piece in pieces] for key in ("output_ids", "text", "meta_info"))
    triples = [meta["output_token_logprobs"] for meta in logprobs]
    assert (list(chain(*ids)) if "output_ids" in new else ids[-1]) == list(truth.output_ids)
    assert ("".join(text) if "text" in new else text[-1]) == engine.tokenizer.decode(truth.output_ids[:-1])
    told = list(chain(*triples)) if "logprobs" in new else triples[-1]
    assert [triple[1] for triple in told] == list(truth.output_ids)
    assert [triple[0] for triple in told] == list(truth.logprobs)
    counts = [meta["completion_tokens"] for meta in logprobs]
    assert counts == sorted(set(counts))
    assert counts[-1] == len(truth.output_ids)
    assert [meta["finish_reason"] is None for meta in logprobs] == [True] * (len(pieces) - 1) + [False]
    assert ["response_sent_to_client_ts" in meta for meta in logprobs] == [True] + [False] * (len(pieces) - 1)
    for key in ("e2e_latency", "spec_verify_ct"):
        assert [key in meta for meta in logprobs] == [False] * (len(pieces) - 1) + [True]


def test_a_stream_and_a_whole_answer_say_the_same(make_engine: Make, post: Post) -> None:
    asked = {"text": "hi", "return_logprob": True, "top_logprobs_num": 2}
    whole = post(make_engine(), "/generate", **asked).json
    last = post(make_engine(), "/generate", stream=True, **asked).events[-1]
    del whole["meta_info"]["response_sent_to_client_ts"]
    assert last == whole


def test_pieces_of_a_batch_carry_their_place(make_engine: Make, post: Post) -> None:
    pieces = post(make_engine(), "/generate", text=["hi", "ho"], stream=True, sampling_params={"n": 2}).events
    assert {piece["index"] for piece in pieces} == {0, 1, 2, 3}
    assert [list(piece)[-1] for piece in pieces] == ["index"] * len(pieces)
    assert "index" not in post(make_engine(), "/generate", text="hi", stream=True).events[0]


ERROR = {"temperature": -1}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_refusal_is_an_error_object_and_in_a_stream_an_event(make_engine: Make, post: Post, profile: str) -> None:
    engine = make_engine(profile=profile, context_length=64)
    message = "The input (99 tokens) is longer than the model's context length (64 tokens)."
    answer = post(engine, "/generate", input_ids=[5] * 99)
    assert (answer.status, answer.json) == (400, {"error": {"message": message}})
    streamed = post(engine, "/generate", input_ids=[5] * 99, stream=True)
    more = {} if RELEASE[profile] < 13 else {"type": "invalid_request_error", "code": 400, "retryable": False}
    assert (streamed.status, streamed.kind) == (200, "text/event-stream; charset=utf-8")
    assert streamed.events == [{"error": {"message": message, **more}}]
    assert engine.generations == []


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("params", [{"zzz": 1}, {"temperature": "hot"}, {"stop": 3}, {"n": "two"}])
def test_parameters_that_are_none_crash_the_older_releases(
    make_engine: Make, post: Post, profile: str, params: dict[str, Any]
) -> None:
    answer = post(make_engine(profile=profile), "/generate", text="hi", sampling_params=params)
    if RELEASE[profile] < 23:
        assert (answer.status, answer.text) == (500, "Internal Server Error")
        assert answer.kind.startswith("text/plain")
    else:
        assert answer.status == 400
        assert isinstance(answer.json["error"], str)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "Either text, input_ids or input_embeds should be provided."),
        ({"input_ids": []}, "input_ids cannot be empty."),
        ({"input_ids": [9_999]}, "The input_ids [9999] contains values greater than the vocab size"),
        ({"input_ids": [-1]}, "The input_ids [-1] contains values greater than the vocab size"),
        ({"text": ["a", "b"], "rid": ["x"]}, "The specified rids length mismatch with the batch_size"),
        ({"text": ["a", "b"], "rid": ["x", "x"]}, "Duplicate request IDs detected within the request: ['x']"),
        ({"text": ["a", "b"], "sampling_params": [{"n": 1}, {"n": 2}]}, "The parallel_sample_num should be the same"),
        (
            {"text": ["a"], "top_logprobs_num": [1], "sampling_params": {"n": 2}},
            "Cannot use list top_logprobs_num with parallel_sample_num > 1",
        ),
        ({"text": "a", "return_logprob": True, "logprob_start_len": 9}, "req.logprob_start_len=9 is higher than"),
        ({"text": "a", "token_ids_logprob": [9_999]}, "token_ids_logprob contains out-of-vocabulary token id 9999"),
        ({"text": "a", "return_hidden_states": True}, "The server is not configured to return the hidden states."),
    ],
)
def test_conflicts_are_refused_in_the_releases_words(
    make_engine: Make, post: Post, asked: dict[str, Any], message: str
) -> None:
    answer = post(make_engine(), "/generate", **asked)
    assert answer.status == 400
    assert answer.json["error"]["message"].startswith(message)


@pytest.mark.parametrize(
    "asked", [{"text": 3}, {"input_ids": "x"}, {"text": "a", "stream": "perhaps"}, {"text": "a", "sampling_params": 3}]
)
def test_a_body_that_does_not_fit_is_a_validation_error(make_engine: Make, post: Post, asked: dict[str, Any]) -> None:
    answer = post(make_engine(), "/generate", **asked)
    assert (answer.status, answer.json["type"]) == (400, "Bad Request")
    assert "validation error" in answer.json["message"]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"image_data": "x"}, "image_data"),
        ({"return_sampling_mask": True}, "return_sampling_mask"),
        ({"sampling_params": {"ebnf": "a"}}, "sampling_params.ebnf"),
        ({"sampling_params": {"structural_tag": "{}"}}, "sampling_params.structural_tag"),
        ({"sampling_params": {"n": 5_000}}, "n"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(
    make_engine: Make, post: Post, asked: dict[str, Any], field: str
) -> None:
    answer = post(make_engine(), "/generate", text="hi", **asked)
    assert (answer.status, answer.json["param"]) == (501, field)


def test_reply_rules_see_the_end_of_the_prompt(make_engine: Make, post: Post) -> None:
    engine = make_engine(rules=[{"contains": "weather", "reply": {"text": "Sunny."}}])
    assert post(engine, "/generate", text="How is the weather").json["text"] == "Sunny."
    assert post(engine, "/generate", input_ids=engine.tokenizer.encode("weather?")).json["text"] == "Sunny."


def test_an_aborted_reply_is_a_200_with_what_was_said(make_engine: Make, post: Post) -> None:
    engine = make_engine(default_reply={"tokens": 9, "abort_after": 4})
    for stream in (False, True):
        answer = post(engine, "/generate", text="hi", stream=stream)
        last = answer.events[-1] if stream else answer.json
        assert last["meta_info"]["finish_reason"]["type"] == "abort"
        assert len(last["output_ids"]) == 4


def test_concurrent_reordered_and_sequential_answers_are_equal(make_engine: Make) -> None:
    bodies = [
        json.dumps({"text": f"q{n:02}", "stream": n % 2 == 0, "return_logprob": True}).encode() for n in range(12)
    ]

    async def answer(engine: Engine, body: bytes) -> bytes:
        said = await engine.serving.generate(body, content_type="application/json")
        return said if isinstance(said, bytes) else b"".join([piece async for piece in said])

    straight, back = make_engine(), make_engine()
    expected = [at_once(answer(straight, body)) for body in bodies]
    reverse = [at_once(answer(back, body)) for body in reversed(bodies)]
    assert reverse[::-1] == expected


@pytest.mark.parametrize("profile", ["sglang-0.5.6", "sglang-0.5.16", "sglang-0.5.23"])
def test_what_was_sampled_is_told_the_same_when_it_is_scored_again(make_engine: Make, post: Post, profile: str) -> None:
    engine = make_engine(profile=profile)
    asked = {"input_ids": [5, 6, 7], "return_logprob": True}
    first = post(engine, "/generate", **asked).json
    whole = [*asked["input_ids"], *first["output_ids"]]  # type: ignore[misc]
    scored = post(
        engine,
        "/generate",
        input_ids=whole,
        return_logprob=True,
        logprob_start_len=2,
        sampling_params={"max_new_tokens": 0},
    ).json
    told = scored["meta_info"]["input_token_logprobs"][1:]
    assert told == first["meta_info"]["output_token_logprobs"]
