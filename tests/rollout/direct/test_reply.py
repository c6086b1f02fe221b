"""Replies of `/generate`: whole, an abort, or refused by the name of the field."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from miles_sim.rollout.direct.reply import DirectReply, read_generation
from miles_sim.rollout.errors import UpstreamResponseError


def reply() -> dict[str, Any]:
    return {
        "text": "hi",
        "output_ids": [104, 105],
        "meta_info": {
            "id": "ab",
            "finish_reason": {"type": "stop", "matched": 105},
            "prompt_tokens": 7,
            "completion_tokens": 2,
            "output_token_logprobs": [[-0.25, 104, None], [0.0, 105, "i"]],
        },
    }


def read(changed: Any) -> DirectReply:
    return read_generation(json.dumps(changed).encode(), prompt_tokens=7)


def _meta(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda r: r["meta_info"].update(fields)


def _without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda r: r["meta_info"].pop(name)


def test_a_sound_reply_gives_ids_logprobs_and_what_was_matched() -> None:
    found = read(reply())
    assert (found.output_ids, found.log_probs) == ((104, 105), (-0.25, 0.0))
    assert (found.response_id, found.finish_reason, found.matched, found.untold) == ("ab", "stop", 105, 0)


@pytest.mark.parametrize("matched", [None, True, 1.5, [105], {"id": 105}])
def test_nothing_but_an_id_or_a_text_was_matched(matched: Any) -> None:
    changed = reply()
    changed["meta_info"]["finish_reason"]["matched"] = matched
    assert read(changed).matched is None


@pytest.mark.parametrize("body", [b"", b"<html>", b"null", b'"text"'])
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(UpstreamResponseError, match="body"):
        read_generation(body, prompt_tokens=7)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda r: r.pop("meta_info"), "meta_info: None is not an object"),
        (_without("output_token_logprobs"), "output_token_logprobs: None is not a list"),
        (_meta(output_token_logprobs=None), "output_token_logprobs: None is not a list"),
        (_meta(output_token_logprobs=[]), "completion_tokens: 2, but output_token_logprobs has 0"),
        (_meta(output_token_logprobs=[[-1, 104]]), "completion_tokens: 2, but output_token_logprobs has 1"),
        (_without("completion_tokens"), "completion_tokens: None"),
        (_meta(output_token_logprobs=[[None, 104], [0, 105]]), r"output_token_logprobs\[0\]\[0\]: None"),
        (_meta(output_token_logprobs=[[float("nan"), 104], [0, 105]]), r"output_token_logprobs\[0\]\[0\]: nan"),
        (_meta(output_token_logprobs=[[0.5, 104], [0, 105]]), r"output_token_logprobs\[0\]\[0\]: 0\.5"),
        (_meta(output_token_logprobs=[[-1, "104"], [0, 105]]), r"output_token_logprobs\[0\]\[1\]: '104'"),
        (_meta(output_token_logprobs=[[-1, 9], [0, 105]]), r"output_ids: \[104, 105\] are not those"),
        (_meta(output_token_logprobs=[-1, 0]), r"output_token_logprobs\[0\]: -1"),
        (_meta(finish_reason=None), "finish_reason: None has no type of stop, tool_calls, length, abort"),
        (_without("finish_reason"), "finish_reason: None"),
        (_meta(finish_reason="stop"), "finish_reason: 'stop' has no type"),
        (_meta(finish_reason={"type": "content_filter"}), "finish_reason: .*content_filter"),
        (_meta(finish_reason={"type": ["stop"]}), "finish_reason"),
        (_meta(prompt_tokens=9), "prompt_tokens: 9, but input_ids held 7"),
        (_without("id"), r"meta_info\.id: None"),
        (_meta(id=""), r"meta_info\.id: '' is not a response id"),
        (_meta(id=3), r"meta_info\.id: 3 is not a response id"),
        (_meta(finish_reason={"type": "abort"}, output_token_logprobs=[], completion_tokens=-1), "completion_tokens"),
    ],
)
def test_a_reply_that_cannot_be_trained_on_is_refused_by_field(change: Any, named: str) -> None:
    changed = reply()
    change(changed)
    with pytest.raises(UpstreamResponseError, match=named):
        read(changed)


def test_several_generations_are_refused() -> None:
    with pytest.raises(UpstreamResponseError, match="a list of 2 generations"):
        read([reply(), reply()])


def test_an_abort_may_tell_what_it_has() -> None:
    changed = reply()
    changed["meta_info"]["finish_reason"] = {"type": "abort", "message": "Aborted"}
    assert read(changed).output_ids == (104, 105)
    changed["meta_info"]["output_token_logprobs"] = []
    assert (read(changed).output_ids, read(changed).untold) == ((), 2)
    sparse = {"text": "", "meta_info": {"id": "ab", "finish_reason": {"type": "abort"}}}
    assert (read(sparse).output_ids, read(sparse).untold) == ((), 0)
