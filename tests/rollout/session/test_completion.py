import json
from collections.abc import Callable
from typing import Any

import pytest

from miles_sim.rollout.errors import UpstreamResponseError
from miles_sim.rollout.session.completion import read_completion


def reply() -> dict[str, Any]:
    return {
        "id": "ab",
        "choices": [
            {
                "message": {"role": "assistant", "content": "hi", "tool_calls": None},
                "finish_reason": "stop",
                "meta_info": {
                    "prompt_tokens": 7,
                    "completion_tokens": 2,
                    "output_token_logprobs": [[-0.25, 104, None], [0.0, 105, "i"]],
                },
            }
        ],
        "usage": {"prompt_tokens": 7},
    }


def read(changed: Any) -> Any:
    return read_completion(json.dumps(changed).encode(), prompt_tokens=7)


def _meta(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda r: r["choices"][0]["meta_info"].update(fields)


def _choice(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda r: r["choices"][0].update(fields)


def _message(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda r: r["choices"][0]["message"].update(fields)


def _entry(*entry: Any) -> Callable[[dict[str, Any]], None]:
    return _meta(output_token_logprobs=[[-1, 5, None], list(entry)])


def test_a_sound_reply_gives_ids_and_logprobs_in_order() -> None:
    completion = read(reply())
    assert completion.output_ids == (104, 105)
    assert completion.log_probs == (-0.25, 0.0)
    assert (completion.response_id, completion.finish_reason, completion.message["content"]) == ("ab", "stop", "hi")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(UpstreamResponseError, match="body"):
        read_completion(body, prompt_tokens=7)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda r: r.pop("choices"), "choices: None"),
        (lambda r: r.update(choices=[]), r"choices: \[\] is not a list of exactly one"),
        (lambda r: r["choices"].append(r["choices"][0]), "choices: .* exactly one"),
        (lambda r: r.update(choices=["x"]), r"choices\[0\]: 'x' is not an object"),
        (lambda r: r.pop("id"), "id: None"),
        (lambda r: r.update(id=""), "id: ''"),
        (lambda r: r["choices"][0].pop("meta_info"), "meta_info: missing or null; .* dropped return_meta_info"),
        (_choice(meta_info=[]), r"meta_info: \[\] is not an object"),
        (_meta(output_token_logprobs=None), "output_token_logprobs: None is not a list"),
        (_meta(output_token_logprobs=[[-1, 5]]), "completion_tokens: 2, but output_token_logprobs has 1"),
        (_meta(completion_tokens=None), "completion_tokens: None"),
        (_meta(completion_tokens=2.0), r"completion_tokens: 2\.0"),
        (_meta(prompt_tokens=9), "prompt_tokens: 9, but input_ids held 7"),
        (_entry(), r"output_token_logprobs\[1\]: \[\]"),
        (_entry(float("nan"), 5, None), r"output_token_logprobs\[1\]\[0\]: nan is not a finite number"),
        (_entry(float("-inf"), 5, None), r"output_token_logprobs\[1\]\[0\]: -inf"),
        (_entry(None, 5, None), r"output_token_logprobs\[1\]\[0\]: None"),
        (_entry("-1", 5, None), r"output_token_logprobs\[1\]\[0\]: '-1'"),
        (_entry(True, 5, None), r"output_token_logprobs\[1\]\[0\]: True"),
        (_entry(0.01, 5, None), r"output_token_logprobs\[1\]\[0\]: 0\.01"),
        (_entry(-1, -5, None), r"output_token_logprobs\[1\]\[1\]: -5 is not a token id"),
        (_entry(-1, "5", None), r"output_token_logprobs\[1\]\[1\]: '5'"),
        (_entry(-1, None, None), r"output_token_logprobs\[1\]\[1\]: None"),
        (_choice(message=None), "message: None is not an object"),
        (_message(role="user"), "role: 'user'"),
        (_message(content=None), "content: None is not a string"),
        (_message(content=["x"]), r"content: \['x'\]"),
        (_message(tool_calls=["f"]), "tool_calls"),
        (_choice(finish_reason=None), "finish_reason: None is not one of"),
        (_choice(finish_reason="content_filter"), "finish_reason: 'content_filter'"),
        (_choice(finish_reason={"type": "stop"}), "finish_reason: {'type'"),
    ],
)
def test_a_reply_that_cannot_be_trained_on_is_refused_by_its_field(change: Callable[[Any], Any], named: str) -> None:
    changed = reply()
    change(changed)
    with pytest.raises(UpstreamResponseError, match=named):
        read(changed)


def test_a_prompt_of_the_engines_own_shows_in_usage_too() -> None:
    changed = reply()
    del changed["choices"][0]["meta_info"]["prompt_tokens"]
    assert read(changed)
    changed["usage"]["prompt_tokens"] = 8
    with pytest.raises(UpstreamResponseError, match=r"usage\.prompt_tokens: 8"):
        read(changed)


def test_no_text_beside_tool_calls_counts_as_empty_text() -> None:
    changed = reply()
    _message(content=None, tool_calls=[{"id": "c"}])(changed)
    assert read(changed).message["content"] == ""


def test_rounding_above_zero_is_no_fault() -> None:
    changed = reply()
    _entry(1e-7, 5, None)(changed)
    assert read(changed).log_probs[1] == 1e-7


def test_the_first_id_of_the_vocabulary_is_one() -> None:
    changed = reply()
    _entry(-1, 0, None)(changed)
    assert read(changed).output_ids == (5, 0)


def test_a_message_without_role_is_the_assistants() -> None:
    changed = reply()
    del changed["choices"][0]["message"]["role"]
    assert read(changed).message["role"] == "assistant"
