"""The prompt is what the request brings, or what the template makes of its messages."""

from typing import Any

import pytest

from miles_sim.engine.errors import NotModelledError, RequestError
from miles_sim.engine.prompt import Prompt, check_length, check_vocabulary, prompt_of
from miles_sim.engine.request import ChatRequest
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.seeding import asked_key
from miles_sim.tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()
USER = {"role": "user", "content": "hi"}


def request(*messages: dict[str, Any], **fields: Any) -> ChatRequest:
    return ChatRequest.model_validate({"messages": list(messages), **fields})


def rendered(*messages: dict[str, Any], **fields: Any) -> str:
    return TOKENIZER.decode(prompt_of(request(*messages, **fields), TOKENIZER).ids)


def test_given_ids_are_the_prompt_and_the_messages_only_choose_the_reply() -> None:
    prompt = prompt_of(request(USER, input_ids=[300, 2]), TOKENIZER)
    assert (prompt.ids, prompt.last_text) == ((300, 2), "hi")


def test_a_prompt_knows_the_question_that_is_asked_with_it_and_not_only_the_last_one() -> None:
    prompt = Prompt((1, 2, 3), "go")
    for sampling in (Sampling(), Sampling(seed=1), Sampling(seed=1)):
        for lora in (None, "a", "b", "b", None):
            assert prompt.question(sampling, lora) == asked_key(prompt.packed, "go", sampling, lora)


def test_messages_are_rendered_canonically() -> None:
    assert prompt_of(request(USER), TOKENIZER).ids == tuple(TOKENIZER.render([USER]))


def test_arguments_of_past_calls_are_parsed_and_spelled_again() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    text = rendered(USER, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "ok"})
    assert '"arguments": {"a": 1}}' in text


@pytest.mark.parametrize(
    ("style", "arguments", "message"),
    [
        ("described", "{", "function.arguments must be valid JSON"),
        ("described", "[]", "function.arguments must be a JSON object"),
        ("parser", "{", "line 1 column 2"),
    ],
)
def test_arguments_that_are_no_object_are_refused_in_the_releases_words(
    style: Any, arguments: str, message: str
) -> None:
    past = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}
    with pytest.raises(RequestError, match=message) as caught:
        prompt_of(request(USER, past, USER), TOKENIZER, bad_arguments=style)
    assert caught.value.body["type"] == "BadRequest"


def test_a_final_assistant_message_is_rendered_as_a_users() -> None:
    assert rendered(USER, {"role": "assistant", "content": "so?"}) == rendered(USER, {"role": "user", "content": "so?"})


def test_parts_of_text_are_joined_and_other_parts_refused() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert rendered({"role": "user", "content": parts}) == rendered({"role": "user", "content": "a b"})
    with pytest.raises(NotModelledError, match=r"messages\[-1\]\.content\[\]\.type: 'image_url'"):
        rendered({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]})


def test_tools_are_rendered_with_their_defaults_unless_none_may_be_called() -> None:
    tools = [{"function": {"name": "look"}}]
    assert '{"type": "function", "function": {"description": null, "name": "look"' in rendered(USER, tools=tools)
    assert rendered(USER, tools=tools, tool_choice="none") == rendered(USER)


@pytest.mark.parametrize(
    ("prompt", "bound", "message"),
    [
        (64, None, "The input (64 tokens) is longer than the model's context length (64 tokens)."),
        (99, None, "The input (99 tokens) is longer than the model's context length (64 tokens)."),
        (
            60,
            30,
            "Requested token count exceeds the model's maximum context length of 64 tokens. You requested a total of "
            "90 tokens: 60 tokens from the input messages and 30 tokens for the completion. Please reduce the number "
            "of tokens in the input messages or the completion to fit within the limit.",
        ),
        (
            58,
            None,
            "Input length (58 tokens) exceeds the maximum allowed length (58 tokens). Use a shorter input or enable "
            "--allow-auto-truncate.",
        ),
    ],
)
def test_what_the_context_cannot_hold_is_refused_in_the_releases_words(
    prompt: int, bound: int | None, message: str
) -> None:
    with pytest.raises(RequestError) as caught:
        check_length(prompt, bound, 64, 64)
    assert str(caught.value) == message


def test_what_just_fits_passes() -> None:
    check_length(57, 6, 64, 64)


def test_a_prompt_that_the_kv_cache_cannot_hold_is_refused() -> None:
    check_length(33, 20, 64, 40)
    with pytest.raises(
        RequestError, match=r"Input length \(34 tokens\) exceeds the maximum allowed length \(34 tokens\)"
    ):
        check_length(34, 1, 64, 40)


@pytest.mark.parametrize("ids", [(821,), (1, 2, 5_000), (-1,)])
def test_ids_outside_the_vocabulary_are_refused(ids: tuple[int, ...]) -> None:
    with pytest.raises(RequestError, match="contains values greater than the vocab size"):
        check_vocabulary(Prompt(ids, ""), TOKENIZER.vocab_size)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(RequestError, match="cannot be empty"):
        check_vocabulary(Prompt((), ""), TOKENIZER.vocab_size)


def test_prompt_and_bound_may_fill_the_context_where_the_release_lets_them() -> None:
    check_length(40, 24, 64, 64, may_fill=True)
    for full, bound in ((False, 24), (True, 25)):
        with pytest.raises(RequestError, match="Requested token count exceeds"):
            check_length(40, bound, 64, 64, may_fill=full)
