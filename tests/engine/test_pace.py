"""When a stream lets out what the model has said."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from miles_sim.engine.engine import Engine

Make = Callable[..., Engine]
Post = Callable[..., Any]
TEXTS = st.text("abé", min_size=1, max_size=12)


def chat_text(piece: dict[str, Any]) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in piece["choices"])


def completion_text(piece: dict[str, Any]) -> str:
    return "".join(choice["text"] for choice in piece["choices"])


ASKED = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}, chat_text),
    ("/v1/completions", {"model": "sim", "prompt": "hi"}, completion_text),
]


@pytest.mark.parametrize(("path", "asked", "text_of"), ASKED)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(text=TEXTS, stop=st.lists(TEXTS, min_size=1, max_size=3), interval=st.integers(1, 3))
def test_a_stream_never_lets_out_a_part_of_a_stop_string(
    make_engine: Make,
    post: Post,
    path: str,
    asked: dict[str, Any],
    text_of: Callable[[dict[str, Any]], str],
    text: str,
    stop: list[str],
    interval: int,
) -> None:
    def engine() -> Engine:
        return make_engine(default_reply={"text": text}, stream_interval=interval)

    (choice,) = post(engine(), path, stop=stop, **asked).json["choices"]
    whole = choice["text"] if "text" in choice else choice["message"]["content"] or ""
    pieces = post(engine(), path, stop=stop, stream=True, **asked).events
    assert "".join(map(text_of, pieces)) == whole


def test_ids_that_may_become_a_stop_string_come_with_the_piece_that_settles_it(make_engine: Make, post: Post) -> None:
    asked = {"text": "hi", "stream": True, "sampling_params": {"stop": "STOP"}}
    told = post(make_engine(default_reply={"text": "a STIR"}), "/generate", **asked).events
    assert [piece["text"] for piece in told] == ["a", "a ", "a STI", "a STIR", "a STIR"]
    assert [len(piece["output_ids"]) for piece in told] == [1, 2, 5, 6, 7]
    ended = post(make_engine(default_reply={"text": "a STOP it"}), "/generate", **asked).events
    assert [piece["text"] for piece in ended] == ["a", "a ", "a "]
    assert ended[-1]["meta_info"]["finish_reason"]["matched"] == "STOP"
