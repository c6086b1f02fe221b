"""The engine's reply to `/generate`, checked: ids and logprobs that can be trained on, or an abort, or an error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from miles_sim.rollout.counters import count
from miles_sim.rollout.engine_reply import check_prompt, read_json, read_object, read_sampled, short
from miles_sim.rollout.errors import AssemblyError, UpstreamResponseError
from miles_sim.rollout.sample import STATUS_OF


@dataclass(frozen=True)
class DirectReply:
    """One generation as `/generate` tells it."""

    response_id: str
    output_ids: Sequence[int]
    log_probs: Sequence[float]
    finish_reason: str
    matched: int | str | None
    """The stop token or stop string that ended it."""
    meta_info: Mapping[str, Any]
    untold: int = 0
    """Sampled ids that an aborted reply counts and does not tell: nothing of it can be trained on."""


def read_generation(body: bytes, *, prompt_tokens: int) -> DirectReply:
    """The generation in `body`, asked with `prompt_tokens` ids.

    UpstreamResponseError by field for anything that is not whole: no logprobs, fewer than `completion_tokens`, ones
    that are no numbers, a finish reason that is null or unknown. An abort may come without logprobs, as one from the
    waiting queue does (SGLang `_handle_abort_req`): it then has no ids.
    """
    found, _ = read_json(body)
    if isinstance(found, list):
        raise UpstreamResponseError(f"body: a list of {len(found)} generations; one was asked for")
    reply = read_object(found, "body")
    meta_info = read_object(reply.get("meta_info"), "meta_info")
    reason, matched = _finish_reason(meta_info.get("finish_reason"))
    check_prompt(meta_info, None, prompt_tokens)
    response_id = meta_info.get("id")
    if not isinstance(response_id, str) or not response_id:
        raise UpstreamResponseError(f"meta_info.id: {short(response_id)} is not a response id")
    if reason == "abort" and not meta_info.get("output_token_logprobs"):
        return DirectReply(response_id, (), (), reason, matched, meta_info, untold=_completion(meta_info))
    output_ids, log_probs = read_sampled(meta_info)
    told = reply.get("output_ids")
    if told is not None and (not isinstance(told, list) or tuple(told) != output_ids):
        raise UpstreamResponseError(f"output_ids: {short(told)} are not those of meta_info.output_token_logprobs")
    return DirectReply(response_id, output_ids, log_probs, reason, matched, meta_info)


def _finish_reason(value: Any) -> tuple[str, int | str | None]:
    """Its type, and what was matched."""
    reason = value.get("type") if isinstance(value, Mapping) else None
    if not isinstance(reason, str) or reason not in STATUS_OF:
        allowed = ", ".join(STATUS_OF)
        raise UpstreamResponseError(f"meta_info.finish_reason: {short(value)} has no type of {allowed}")
    matched = value.get("matched")
    return reason, matched if isinstance(matched, int | str) and not isinstance(matched, bool) else None


def _completion(meta_info: Mapping[str, Any]) -> int:
    try:
        return count(meta_info, "completion_tokens")
    except AssemblyError as error:
        raise UpstreamResponseError(str(error)) from None
