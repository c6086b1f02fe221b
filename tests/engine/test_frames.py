"""Requests that share all but messages and ids are read as if each came alone."""

import json
from typing import Any

import pytest

from miles_sim.engine import profiles
from miles_sim.engine.arrived import arrived
from miles_sim.engine.errors import RequestError
from miles_sim.engine.frames import MOST, Frame, Frames
from miles_sim.engine.request import ChatRequest, json_body, parse

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
