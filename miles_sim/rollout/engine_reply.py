"""What any reply of the engine is checked for, on the session path and on the direct one alike."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from miles_sim.rollout.errors import AssemblyError, UpstreamResponseError
from miles_sim.rollout.replay import check_rows
from miles_sim.rollout.sample import generation_counters, weight_versions
from miles_sim.rollout.settings import RolloutSettings

LARGEST_LOGPROB = 1e-6
"""Rounding may leave a sure token a hair above 0; anything larger is no log probability."""


def read_json(body: bytes) -> tuple[Any, bool]:
    """What `body` spells, and whether it is JSON to the letter."""
    try:
        return orjson.loads(body), True
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(
            body.decode()
        ), False  # lets NaN and Infinity through, so that they are refused by their field's name
    except (ValueError, RecursionError) as error:
        raise UpstreamResponseError(f"body: not JSON: {error}") from error


def read_object(value: Any, name: str) -> dict[str, Any]:
    """`value`, which stands at `name`; UpstreamResponseError unless it is an object."""
    if not isinstance(value, dict):
        raise UpstreamResponseError(f"{name}: {short(value)} is not an object")
    return value


def check_prompt(meta_info: Mapping[str, Any], usage: Any, expected: int) -> None:
    """An engine, or a router before it, that dropped `input_ids` has generated from a prompt of its own."""
    found = meta_info.get("prompt_tokens")
    name = "meta_info.prompt_tokens"
    if found is None and isinstance(usage, dict):
        found, name = usage.get("prompt_tokens"), "usage.prompt_tokens"
    if found is not None and found != expected:
        raise UpstreamResponseError(
            f"{name}: {short(found)}, but input_ids held {expected}; the engine or a router on the way dropped them"
        )


def read_sampled(meta_info: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Sampled ids and their logprobs; UpstreamResponseError unless `completion_tokens` pairs are there."""
    entries = meta_info.get("output_token_logprobs")
    if not isinstance(entries, list):
        raise UpstreamResponseError(f"meta_info.output_token_logprobs: {short(entries)} is not a list")
    quick = _all_sampled(entries)
    for i, entry in enumerate(() if quick else entries):
        if not isinstance(entry, list) or len(entry) < 2:
            raise UpstreamResponseError(f"meta_info.output_token_logprobs[{i}]: {short(entry)} is not [logprob, id, …]")
        if not is_logprob(entry[0]):
            raise UpstreamResponseError(
                f"meta_info.output_token_logprobs[{i}][0]: {short(entry[0])} is not a finite number up to 0"
            )
        if type(entry[1]) is not int or entry[1] < 0:
            raise UpstreamResponseError(f"meta_info.output_token_logprobs[{i}][1]: {short(entry[1])} is not a token id")
    count = meta_info.get("completion_tokens")
    if type(count) is not int or count != len(entries):
        raise UpstreamResponseError(
            f"meta_info.completion_tokens: {short(count)}, but output_token_logprobs has {len(entries)} entries"
        )
    return tuple(entry[1] for entry in entries), tuple(float(entry[0]) for entry in entries)


def _all_sampled(entries: list[Any]) -> bool:
    """Each entry is a log probability and an id; what is wrong with one that is not, who looks at each says."""
    if not set(map(type, entries)) <= {list} or min(map(len, entries), default=2) < 2:
        return False
    told, ids = [entry[0] for entry in entries], [entry[1] for entry in entries]
    if not set(map(type, told)) <= {int, float} or not set(map(type, ids)) <= {int}:
        return False
    return all(map(math.isfinite, told)) and max(told, default=0) <= LARGEST_LOGPROB and min(ids, default=0) >= 0


def check_recordable(
    meta_info: Mapping[str, Any],
    output_ids: Sequence[int],
    *,
    prompt_tokens: int,
    finish_reason: str,
    offsets: Mapping[str, Any],
    settings: RolloutSettings,
    tokenizer: Any,
) -> None:
    """UpstreamResponseError for what the samples would be refused for later, when nobody can ask again.

    Ids from the tokenizer's `vocab_size` on, if it has one; counters, weight versions and replay rows that cannot be
    read. `offsets`: first rows that were asked for, by the request's name for them.
    """
    size = getattr(tokenizer, "vocab_size", None)
    if size is not None and (largest := max(output_ids, default=0)) >= size:
        place = f"meta_info.output_token_logprobs[{list(output_ids).index(largest)}][1]"
        raise UpstreamResponseError(f"{place}: {largest} is not in the vocabulary, 0..{size - 1}")
    try:
        generation_counters(meta_info, settings)
        weight_versions(meta_info)
        total = prompt_tokens + len(output_ids)
        check_rows(meta_info, total, finish_reason=finish_reason, offsets=offsets, settings=settings)
    except AssemblyError as error:
        raise UpstreamResponseError(str(error)) from None


def is_logprob(value: Any) -> bool:
    """A finite number up to 0; a bool is none."""
    return type(value) in (int, float) and math.isfinite(value) and value <= LARGEST_LOGPROB


def short(value: Any) -> str:
    """A value for an error, cut to 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
