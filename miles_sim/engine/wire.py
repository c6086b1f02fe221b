"""From a generation to the JSON that a release answers with: `meta_info` and the chat completion."""

from functools import lru_cache
from typing import Any

from miles_sim.engine.finish import text_of
from miles_sim.engine.flight import Answered
from miles_sim.engine.profiles import ChatWire, Profile
from miles_sim.engine.request import ChatRequest
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.seeding import name
from miles_sim.engine.tool_calls import ParsedCall, call_index, parse
from miles_sim.ledger import Generation
from miles_sim.tokenizer import ByteTokenizer


class TokenTexts:
    """The text of each single id, as `output_token_logprobs` and `logprobs.content` spell it."""

    def __init__(self, tokenizer: ByteTokenizer) -> None:
        self.text = [tokenizer.decode([i]) for i in range(tokenizer.vocab_size)]
        self.bytes = [list(text.encode()) for text in self.text]


@lru_cache(maxsize=8)
def token_texts(family: str) -> TokenTexts:
    """The texts of a built-in family, made once."""
    return TokenTexts(ByteTokenizer(family))


def meta_info(
    profile: Profile, answered: Answered, *, logprobs: bool, texts: TokenTexts, reason: dict[str, Any] | None = None
) -> dict[str, Any]:
    """`meta_info` in the profile's keys and order. `reason` stands in place of the generation's own."""
    generation, spec = answered.generation, answered.generation.spec
    ran = spec is not None and spec.verify_ct > 0
    values: dict[str, Any] = {
        "id": generation.id,
        "finish_reason": reason or generation.finish_reason,
        "prompt_tokens": len(generation.prompt_ids),
        "weight_version": generation.weight_version,
        "retractions": 0,
        "reasoning_tokens": 0,
        "completion_tokens": len(generation.output_ids),
        "cached_tokens": generation.cached_tokens,
        "cached_tokens_details": cached_details(generation),
        "dp_rank": None,
        "e2e_latency": answered.timing.latency,
        "sent_at": answered.timing.sent_at,
    }
    if logprobs:
        pairs = zip(generation.logprobs, generation.output_ids, strict=True)
        values["input_token_logprobs"] = []
        values["output_token_logprobs"] = [[logprob, token, texts.text[token]] for logprob, token in pairs]
    if spec is not None and ran:
        values |= {
            "accept_rate": spec.accepted / spec.drafted,
            "accept_length": len(generation.output_ids) / spec.verify_ct,
            "accepted": spec.accepted,
            "drafted": spec.drafted,
            "verify_ct": spec.verify_ct,
            "histogram": list(spec.histogram),
        }
    holds = {"finished", "sent", *(["logprobs"] if logprobs else []), *(["speculative"] if ran else [])}
    return {key: values[value] for key, value in profile.layout(frozenset(holds))}


def cached_details(generation: Generation) -> dict[str, int] | None:
    """Where cached ids lay: all on the device, there being no other tier (output_streamer.py)."""
    return {"device": generation.cached_tokens, "host": 0} if generation.cached_tokens else None


def chat_completion(
    profile: Profile,
    request: ChatRequest,
    sampling: Sampling,
    answered: Answered,
    *,
    tokenizer: ByteTokenizer,
    texts: TokenTexts,
) -> dict[str, Any]:
    """The body of a `/v1/chat/completions` answer."""
    generation, wire = answered.generation, profile.chat
    reason = generation.finish_reason
    text = text_of(
        generation.output_ids,
        reason,
        tokenizer,
        no_stop_trim=sampling.no_stop_trim,
        skip_special_tokens=sampling.skip_special_tokens,
    )
    calls: tuple[ParsedCall, ...] | None = None
    if sampling.tools is not None:
        parsed = parse(text, reason, sampling.tools, wire)
        text, calls, reason = parsed.text, parsed.calls, parsed.reason
    choice = {
        "index": 0,
        "message": _ordered(wire.message, _message(wire, text, calls, answered.key)),
        "logprobs": {"content": _logprob_content(generation, texts)} if request.logprobs else None,
        "finish_reason": reason["type"],
        "matched_stop": reason.get("matched"),
    }
    if request.return_prompt_token_ids:
        choice["prompt_token_ids"] = generation.prompt_ids
    if request.return_meta_info:
        choice["meta_info"] = meta_info(profile, answered, logprobs=request.logprobs, texts=texts, reason=reason)
    body = {
        "id": generation.id,
        "object": "chat.completion",
        "created": answered.timing.created,
        "model": request.model,
        "choices": [_ordered(wire.choice, choice)],
        "usage": _ordered(profile.usage.keys, _usage(generation)),
        "metadata": {"weight_version": generation.weight_version},
    }
    if request.return_cached_tokens_details and generation.cached_tokens:
        body["sglext"] = {"cached_tokens_details": cached_details(generation)}
    return _ordered(wire.response, body)


def _ordered(keys: tuple[str, ...], values: dict[str, Any]) -> dict[str, Any]:
    return {key: values[key] for key in keys if key in values}


def _message(wire: ChatWire, text: str, calls: tuple[ParsedCall, ...] | None, key: bytes) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text or ("" if wire.empty_content == "" else None),
        "reasoning_content": None,
    }
    if calls is not None:
        message["tool_calls"] = [
            {
                "id": f"call_{name(key, f'call {position}', 24)}",
                "index": call_index(position, wire),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for position, call in enumerate(calls)
        ]
    elif wire.no_tool_calls == "null":
        message["tool_calls"] = None
    return message


def _logprob_content(generation: Generation, texts: TokenTexts) -> list[dict[str, Any]]:
    return [
        {"token": texts.text[token], "bytes": texts.bytes[token], "logprob": logprob, "top_logprobs": []}
        for token, logprob in zip(generation.output_ids, generation.logprobs, strict=True)
    ]


def _usage(generation: Generation) -> dict[str, Any]:
    prompt, completion = len(generation.prompt_ids), len(generation.output_ids)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": None,
        "reasoning_tokens": 0,
    }
