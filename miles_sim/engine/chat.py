"""The body of a `/v1/chat/completions` answer, from finished generations."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from miles_sim.engine.finish import text_of
from miles_sim.engine.flight import Answered
from miles_sim.engine.formats import ParsedCall
from miles_sim.engine.formats.kimi import call_id as kimi_call_id
from miles_sim.engine.fragments import numbers
from miles_sim.engine.profiles import ChatWire
from miles_sim.engine.request import ChatRequest, GenerationRequest
from miles_sim.engine.said import Reader, Said
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.seeding import name
from miles_sim.engine.tool_calls import call_number
from miles_sim.engine.usage import counts_of, summed, usage
from miles_sim.engine.wire import (
    Progress,
    Triple,
    Want,
    Wire,
    cached_details,
    finished,
    meta_info,
    routed_experts,
    spec_details,
    top_rows,
    weight_spans,
)


def want_of(request: ChatRequest) -> Want:
    """What a chat request asks for beside the reply (serving_chat.py `_convert_to_internal_request`)."""
    return Want(
        logprobs=request.logprobs,
        top_logprobs=request.top_logprobs or 0,
        texts=True,
        routed_experts=request.return_routed_experts,
        routed_experts_start=request.routed_experts_start_len,
        prompt_token_ids=request.return_prompt_token_ids,
    )


class Pieces(NamedTuple):
    """What of one choice has the length of its reply."""

    text: str
    content: bytes | list[dict[str, Any]] | None
    """`logprobs.content`, spelled where it has one shape; None: no logprobs are told."""
    triples: bytes | None
    """`output_token_logprobs`, spelled; None: they are not told."""


def pieces_of(
    wire: Wire, request: ChatRequest, sampling: Sampling, answered: Answered, *, triples: bool = True
) -> Pieces:
    """`triples`: whether the answer has any use for them."""
    text = text_of(answered.output_ids, answered.finish_reason, wire.tokenizer, wire.trim(sampling))
    if not request.logprobs:
        return Pieces(text, None, None)
    ids, spelled = answered.output_ids, numbers(answered.logprobs)
    if request.top_logprobs:
        content = _content(wire, request, answered)
        return Pieces(text, content, wire.texts.fragments.triples(ids, spelled, texts=True) if triples else None)
    fragments = wire.texts.fragments if wire.profile.chat.token_bytes == "text" else wire.texts.raw_fragments
    return Pieces(text, *(fragments.both(ids, spelled) if triples else (fragments.content(ids, spelled), None)))


def _content(wire: Wire, request: ChatRequest, answered: Answered) -> list[dict[str, Any]]:
    ids, logprobs = answered.output_ids, answered.logprobs
    rows = top_rows(wire, request.top_logprobs or 0, answered.prompt_ids, ids, logprobs)
    return logprob_content(wire, ids, logprobs, rows)


def chat_completion(
    wire: Wire,
    request: ChatRequest,
    sampling: Sampling,
    want: Want,
    answers: Sequence[Answered],
    reader: Reader,
    pieces: Sequence[Pieces] | None = None,
) -> dict[str, Any]:
    """The whole body; one choice an answer. `pieces`: of each, where they are there."""
    shape, first = wire.profile.chat, answers[0]
    if pieces is None:
        triples = request.return_meta_info
        pieces = [pieces_of(wire, request, sampling, answer, triples=triples) for answer in answers]
    told = [finished(answer) for answer in answers]
    metadata: dict[str, Any] = {"weight_version": first.weight_version}
    if wire.profile.weight_versions:
        metadata["weight_versions"] = weight_spans(first)
    body = {
        "id": first.id,
        "object": "chat.completion",
        "created": first.timing.created,
        "model": request.model,
        "choices": [
            _choice(wire, request, want, answer, known, n, reader, piece)
            for n, (answer, known, piece) in enumerate(zip(answers, told, pieces, strict=True))
        ],
        "usage": usage(wire, summed([counts_of(known, want) for known in told], len(told))),
        "metadata": metadata,
    }
    extra = sglext(wire, request, answers, keys=shape.sglext)
    if request.return_meta_info and not shape.experts_with_meta_info:
        extra.pop("routed_experts", None)
    if extra:
        body["sglext"] = extra
    return _ordered(shape.response, body)


def _ordered(keys: tuple[str, ...], values: dict[str, Any]) -> dict[str, Any]:
    return {key: values[key] for key in keys if key in values}


def _choice(
    wire: Wire,
    request: ChatRequest,
    want: Want,
    answered: Answered,
    known: Progress,
    index: int,
    reader: Reader,
    pieces: Pieces,
) -> dict[str, Any]:
    shape = wire.profile.chat
    said = reader.read(pieces.text, answered.finish_reason)
    choice = {
        "index": index,
        "message": _ordered(shape.message, _message(shape, said, answered, reader)),
        "logprobs": None if pieces.content is None else {"content": _told(pieces.content)},
        "finish_reason": said.reason["type"],
        "matched_stop": said.reason.get("matched"),
    }
    if request.return_prompt_token_ids or request.return_token_ids:
        choice["prompt_token_ids"] = answered.prompt_ids
    if request.return_token_ids:
        choice["response_token_ids"] = answered.output_ids
    if request.return_meta_info:
        choice["meta_info"] = meta_info(wire, want, known, reason=said.reason, triples=pieces.triples)
    return _ordered(shape.choice, choice)


def _told(content: bytes | list[dict[str, Any]]) -> Any:
    return orjson.Fragment(content) if isinstance(content, bytes) else content


def _message(shape: ChatWire, said: Said, answered: Answered, reader: Reader) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": said.text or ("" if shape.empty_content == "" else None),
        "reasoning_content": said.thought or None,
    }
    if said.calls is not None:
        message["tool_calls"] = [_call(shape, call, n, answered, reader) for n, call in enumerate(said.calls)]
    elif shape.no_tool_calls == "null":
        message["tool_calls"] = None
    return message


def _call(shape: ChatWire, call: ParsedCall, position: int, answered: Answered, reader: Reader) -> dict[str, Any]:
    return {
        "id": call_id(
            reader,
            answered.asked.key,
            call.name,
            call.tool,
            0 if answered.misbehaved == "same_call_id" else position,
        ),
        "index": call_number(call, position, shape),
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def call_id(reader: Reader, key: bytes, called: str, number: int, position: int) -> str:
    """The id of the call at that place of a reply; `key`: the reply's, `number`: the parser's for the call.

    Kimi's counts all calls of the conversation (serving_chat.py `_process_tool_call_id`).
    """
    if reader.tool_parser == "kimi_k2":
        return kimi_call_id(called, reader.calls_before + number)
    return f"call_{name(key, f'call {position}', 24)}"


def logprob_content(
    wire: Wire, ids: Sequence[int], logprobs: Sequence[float], rows: Sequence[Sequence[Triple]] | None = None
) -> list[dict[str, Any]]:
    """`logprobs.content` of these output ids; `rows`: the top logprobs at each of them."""
    told: list[list[dict[str, Any]]] = [[] for _ in ids]
    if rows is not None:
        told = [[_alternative(wire, triple) for triple in _shown(wire, row)] for row in rows]
    text, spelled = wire.texts.text, _spelled(wire)
    return [
        {"token": text[token], "bytes": spelled[token], "logprob": logprob, "top_logprobs": row}
        for token, logprob, row in zip(ids, logprobs, told, strict=True)
    ]


def _shown(wire: Wire, row: Sequence[Triple]) -> Sequence[Triple]:
    """Up to the release that tells bytes apart, alternatives with the same text are one: the place of the first,
    the logprob of the last (utils.py `to_openai_style_logprobs`)."""
    if wire.profile.chat.token_bytes == "token":
        return row
    return list({triple[2]: triple for triple in row}.values())


def _alternative(wire: Wire, triple: Triple) -> dict[str, Any]:
    logprob, token, text = triple
    return {"token": text, "bytes": _spelled(wire)[token], "logprob": logprob}


def _spelled(wire: Wire) -> list[list[int]]:
    """The bytes of each id, as the release tells them."""
    return wire.texts.bytes if wire.profile.chat.token_bytes == "text" else wire.texts.raw


def sglext(
    wire: Wire, request: GenerationRequest, answers: Sequence[Answered], *, keys: tuple[str, ...]
) -> dict[str, Any]:
    """What was asked for of these keys, where there is any."""
    first = answers[0]
    values: dict[str, Any] = {}
    if request.return_routed_experts:
        values["routed_experts"] = routed_experts(first, request.routed_experts_start_len)
    if request.return_cached_tokens_details and wire.profile.cached_details:
        values["cached_tokens_details"] = cached_details(first.cached_tokens)
    if request.return_spec_tokens_details:
        details = [d for d in map(spec_details, answers) if d is not None]
        values["spec_tokens_details"] = (details if request.n > 1 else details[0]) if details else None
    if request.return_input_ids_in_sglext:
        values["input_ids"] = first.prompt_ids
    if request.return_output_ids_in_sglext:
        values["output_ids"] = [answer.output_ids for answer in answers]
    return {key: values[key] for key in keys if values.get(key) is not None}
