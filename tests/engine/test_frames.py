"""Requests that share all but messages and ids are read as if each came alone."""

import json
from typing import Any

import pytest

from miles_sim.engine import profiles
from miles_sim.engine.arrived import arrived
from miles_sim.engine.engine import Engine
from miles_sim.engine.errors import RequestError
from miles_sim.engine.flight import at_once
from miles_sim.engine.frames import LATEST, LONGEST, MOST, Frame, Frames, Plain
from miles_sim.engine.request import ChatRequest, json_body, parse
from miles_sim.engine.settings import EngineSettings

PROFILE = profiles.load("sglang-0.5.16")
BASE: dict[str, Any] = {"messages": [{"role": "user", "content": "a"}], "input_ids": [1, 2], "max_tokens": 5}
DOCUMENTS = [
    BASE,
    BASE | {"input_ids": [3, 4, 5]},
    BASE
    | {"messages": [{"role": "System", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "y"}]}]},
    BASE | {"input_ids": [True, 2.0, "7"]},
    BASE | {"input_ids": [-1, 2**40]},
    BASE | {"input_ids": None},
    BASE | {"temperature": 0.5, "tools": [{"type": "function", "function": {"name": "look"}}]},
    {"messages": BASE["messages"], "max_tokens": 5},
    BASE,
]


def told(request: ChatRequest) -> dict[str, Any]:
    values = {name: getattr(request, name) for name in ChatRequest.model_fields}
    ids = values.pop("input_ids")
    return values | {"ids": None if ids is None else list(ids), "set": request.model_fields_set}


def parsed(frames: Frames, body: bytes) -> tuple[ChatRequest, Frame]:
    return frames.read(*frames.find(json_body(body, content_type="application/json")))


def test_what_arrived_is_told_of_each_request_alone() -> None:
    frames = Frames(PROFILE)
    for document in [*DOCUMENTS, *DOCUMENTS]:
        request, frame = parsed(frames, spelled(document))
        assert frame.arrived(request) == arrived(request)
        request, frame = parsed(frames, spelled(document))
        request.return_input_ids_in_sglext = True
        assert frame.arrived(request) == arrived(request)


def spelled(document: Any) -> bytes:
    return json.dumps(document).encode()


def test_each_request_is_what_it_is_when_it_comes_alone() -> None:
    frames = Frames(PROFILE)
    for document in [*DOCUMENTS, *DOCUMENTS]:
        alone = parse(spelled(document), content_type="application/json", fields=PROFILE.chat.known)
        assert told(parsed(frames, spelled(document))[0]) == told(alone)


@pytest.mark.parametrize(
    "wrong",
    [{"messages": [{"role": "user"}]}, {"messages": "no"}, {"input_ids": ["x"]}, {"input_ids": 7}, {"max_tokens": "x"}],
    ids=str,
)
def test_what_is_wrong_is_told_in_the_same_words_beside_a_known_frame(wrong: dict[str, Any]) -> None:
    frames, body = Frames(PROFILE), spelled(BASE | wrong)
    parsed(frames, spelled(BASE))
    with pytest.raises(RequestError) as alone:
        parse(body, content_type="application/json", fields=PROFILE.chat.known)
    with pytest.raises(RequestError) as beside:
        parsed(frames, body)
    assert beside.value.body == alone.value.body


def test_a_number_that_is_none_is_not_taken_for_null() -> None:
    frames = Frames(PROFILE)
    first, _ = parsed(frames, spelled(BASE | {"temperature": None}))
    second, _ = parsed(frames, spelled(BASE | {"temperature": float("nan")}))
    assert first.temperature is None
    assert second.temperature is not None


def test_what_one_request_is_given_no_other_has() -> None:
    frames = Frames(PROFILE)
    first, _ = parsed(frames, spelled(BASE))
    second, _ = parsed(frames, spelled(BASE))
    second.return_input_ids_in_sglext = True
    third, frame = parsed(frames, spelled(BASE))
    assert not any(request.return_input_ids_in_sglext for request in (first, third, frame.request))


def test_so_many_frames_are_kept_and_no_more() -> None:
    frames = Frames(PROFILE)
    for n in range(MOST + 10):
        parsed(frames, spelled(BASE | {"max_tokens": n}))
    assert len(frames._frames) == 10


def engine(**settings: Any) -> Engine:
    return Engine(EngineSettings.model_validate({"profile": "sglang-0.5.16", **settings}), seed=0)


def chat(asked: Engine, body: bytes, content_type: str = "application/json", **headers: str) -> Any:
    said = at_once(asked.serving.chat(body, content_type=content_type, headers=headers))
    return json.loads(said) if isinstance(said, bytes) else said


def test_a_group_of_samples_has_its_request_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []

    def noted(body: bytes) -> Any:
        read.append(body)
        return json.loads(body)

    monkeypatch.setattr("miles_sim.engine.serving.json_document", noted)
    asked, alone = engine(), engine()
    told = [chat(asked, body) for body in [spelled(BASE)] * 5]
    assert len(read) == 2  # with the first one its frame was not known
    told_alone = []
    for _ in range(5):
        alone.serving._frames._latest.clear()
        told_alone.append(chat(alone, spelled(BASE)))
    assert told == told_alone
    assert asked.generations == alone.generations


def test_a_request_that_was_taken_before_is_refused_where_it_does_not_say_that_it_is_json() -> None:
    asked = engine()
    for _ in range(3):
        chat(asked, spelled(BASE))
    with pytest.raises(RequestError, match="Only 'application/json' is allowed"):
        chat(asked, spelled(BASE), content_type="text/plain")


def test_a_request_that_was_taken_before_has_its_adapter_loaded_again() -> None:
    asked = engine(lora={"calm": "/calm"})
    body = spelled(BASE | {"lora_path": "calm"})
    for _ in range(3):
        chat(asked, body)
    asked.adapters.unload("calm")
    chat(asked, body)
    assert asked.adapters.loaded == {"calm": "/calm"}
    assert {generation.lora for generation in asked.generations} == {"calm"}


def test_headers_that_change_an_answer_do_so_for_a_request_that_was_taken_before() -> None:
    asked = engine(profile="sglang-0.5.23")
    for _ in range(3):
        assert "sglext" not in chat(asked, spelled(BASE))
    assert chat(asked, spelled(BASE), **{"x-sglext-return-output-ids": "1"})["sglext"]["output_ids"]


def test_what_is_refused_is_refused_each_time() -> None:
    asked = engine()
    chat(asked, spelled(BASE))
    for _ in range(3):
        with pytest.raises(RequestError, match="vocab size"):
            chat(asked, spelled(BASE | {"input_ids": [5_000]}))


def test_so_many_requests_are_kept_whole_and_no_long_ones() -> None:
    frames, plain = Frames(PROFILE), Plain(*[None] * 3)  # type: ignore[arg-type]
    for n in range(LATEST + 10):
        frames.keep(b"%d" % n, plain)
    assert [*frames._latest] == [b"%d" % n for n in range(10, LATEST + 10)]
    frames.keep(b"x" * (LONGEST + 1), plain)
    assert len(frames._latest) == LATEST
