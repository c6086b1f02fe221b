"""The prompt of a chat request: the ids it brings, or its messages rendered as SGLang renders them."""

from array import array
from collections.abc import Sequence
from contextlib import suppress
from struct import error as StructError
from typing import Any, Literal

import numpy as np
import orjson

from miles_sim.engine.errors import NotModelledError, RequestError
from miles_sim.engine.packed import pack, tuple_of, unpacked
from miles_sim.engine.request import Call, ChatMessage, ChatRequest, GenericMessage, Part
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.seeding import asked_key
from miles_sim.tokenizer import ByteTokenizer, TokenizerError

INPUT_MARGIN = 6
"""Ids of the context that a prompt may not reach into (tp_worker.py: context - 1 - 5)."""

BadArguments = Literal["described", "parser"]


class Prompt:
    """What the model reads."""

    __slots__ = ("_asked", "_ids", "last_text", "packed", "size")

    def __init__(self, ids: Sequence[int], last_text: str) -> None:
        """`last_text`: text of the request's last message, what reply rules are matched on."""
        self.last_text = last_text
        self.size = len(ids)
        self.packed = b""
        """The ids as bytes; none where there are such as `pack` refuses."""
        self._ids: tuple[int, ...] | None = None
        self._asked: tuple[Sampling, str | None, bytes] | None = None
        if isinstance(ids, array):
            self.packed = pack(ids)
        else:
            self._ids = tuple(ids)
            with suppress(OverflowError, StructError):
                self.packed = pack(self._ids)

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids, made when they are first looked at: most requests do without."""
        if self._ids is None:
            self._ids = tuple_of(self.packed)
        return self._ids

    def question(self, sampling: Sampling, lora: str | None) -> bytes:
        """The key of what is asked with this prompt (`seeding.asked_key`); it is mostly the same as the last time."""
        asked = self._asked
        if asked is None or asked[0] is not sampling or asked[1] != lora:
            asked = self._asked = sampling, lora, asked_key(self.packed, self.last_text, sampling, lora)
        return asked[2]

    @property
    def given(self) -> Sequence[int]:
        """The same, without a tuple made of them."""
        return unpacked(self.packed) if self._ids is None else self._ids


def prompt_of_ids(ids: Sequence[int], last_text: str) -> Prompt:
    """These ids as an array, but for those that no array holds."""
    try:
        return Prompt(ids if isinstance(ids, array) else array("I", ids), last_text)
    except OverflowError:
        return Prompt(tuple(ids), last_text)


def prompt_of(request: ChatRequest, tokenizer: ByteTokenizer, *, bad_arguments: BadArguments = "parser") -> Prompt:
    """`input_ids` as they are, else the rendered messages; `RequestError` where the template takes neither."""
    last_text = _text(request.messages[-1].content, "messages[-1].content")
    if request.input_ids is not None:
        return prompt_of_ids(request.input_ids, last_text)
    messages = [_template_message(m, i, bad_arguments) for i, m in enumerate(request.messages)]
    if messages[-1]["role"] == "assistant":
        messages[-1] = {"role": "user", "content": messages[-1]["content"]}
    options = dict(request.chat_template_kwargs or {})
    if request.reasoning_effort is not None:
        options.setdefault("reasoning_effort", request.reasoning_effort)
    tools = request.offered if request.parses_tools else None
    try:
        ids = tokenizer.render(messages, tools=tools, template_options=options)
    except (TokenizerError, TypeError) as error:
        raise RequestError(str(error), kind="BadRequest") from None
    return prompt_of_ids(ids, last_text)


def _template_message(message: ChatMessage, number: int, bad_arguments: BadArguments) -> dict[str, Any]:
    """A message as the template gets it: no nulls, content a string, tool arguments parsed."""
    given: dict[str, Any] = {
        "role": message.role,
        "content": _text(message.content, f"messages[{number}].content"),
    }
    if isinstance(message, GenericMessage):
        if message.reasoning_content is not None:
            given["reasoning_content"] = message.reasoning_content
        if message.tool_calls is not None:
            parse = message.role == "assistant"
            given["tool_calls"] = [_template_call(call, parse, bad_arguments) for call in message.tool_calls]
    return given


def _text(content: str | list[Part] | None, place: str) -> str:
    if isinstance(content, list):
        for part in content:
            if part.type not in ("text", "input_text"):
                raise NotModelledError(f"{place}[].type", part.type, "text")
        return " ".join(part.text or "" for part in content)
    return content or ""


def _template_call(call: Call, parse: bool, bad_arguments: BadArguments) -> dict[str, Any]:
    arguments: Any = call.function.arguments
    if parse and isinstance(arguments, str):
        arguments = _arguments(arguments, bad_arguments)
    return {"id": call.id, "type": call.type, "function": {"name": call.function.name, "arguments": arguments}}


def _arguments(text: str, bad_arguments: BadArguments) -> Any:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        own = "Assistant tool call function.arguments must be valid JSON."
        raise RequestError(own if bad_arguments == "described" else str(error), kind="BadRequest") from None
    if bad_arguments == "described" and not isinstance(value, dict):
        raise RequestError("Assistant tool call function.arguments must be a JSON object.", kind="BadRequest")
    return value


def check_length(
    prompt_tokens: int, max_new_tokens: int | None, context_length: int, longest: int, *, may_fill: bool = True
) -> None:
    """`RequestError` for a prompt, or prompt and bound, that the context cannot hold, or a prompt that the KV cache
    cannot. `longest`: ids of one request that there is room for in both (tp_worker.py: `max_req_len`).

    `may_fill`: prompt and bound together may be as long as the context (from 0.5.11).

    Messages and order as in tokenizer_manager.py `_validate_one_request` and managers/utils.py
    `validate_input_length`.
    """
    if prompt_tokens >= context_length:
        raise RequestError(
            f"The input ({prompt_tokens} tokens) is longer than the model's context length ({context_length} tokens)."
        )
    if max_new_tokens is not None and prompt_tokens + max_new_tokens > context_length - (not may_fill):
        raise RequestError(
            f"Requested token count exceeds the model's maximum context length of {context_length} tokens. "
            f"You requested a total of {prompt_tokens + max_new_tokens} tokens: {prompt_tokens} tokens from the "
            f"input messages and {max_new_tokens} tokens for the completion. Please reduce the number of tokens in "
            "the input messages or the completion to fit within the limit."
        )
    longest -= INPUT_MARGIN
    if prompt_tokens >= longest:
        raise RequestError(
            f"Input length ({prompt_tokens} tokens) exceeds the maximum allowed length ({longest} tokens). "
            "Use a shorter input or enable --allow-auto-truncate."
        )


def check_vocabulary(prompt: Prompt, vocab_size: int) -> None:
    """`RequestError` for ids that no embedding has, in the words SGLang keeps for it; a GPU would do anything."""
    if not prompt.size:
        raise RequestError("input_ids cannot be empty.")
    ids = np.frombuffer(prompt.packed, dtype="<u4")
    # the place of the greatest is found thrice as fast as the greatest
    if len(ids) < prompt.size or ids.item(ids.argmax()) >= vocab_size:
        bad = next(i for i in prompt.given if not 0 <= i < vocab_size)
        raise RequestError(f"The input_ids [{bad}] contains values greater than the vocab size ({vocab_size}).")
