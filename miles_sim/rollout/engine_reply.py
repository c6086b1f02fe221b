"""What any reply of the engine is checked for, on the session path and on the direct one alike."""

import json
import math
from collections.abc import Mapping
from typing import Any

import orjson

from miles_sim.rollout.errors import UpstreamResponseError

LARGEST_LOGPROB = 1e-6
"""Rounding may leave a sure token a hair above 0; anything larger is no log probability."""


def read_json(body: bytes) -> tuple[Any, bool]:
    """What `body` spells, and whether it is JSON to the letter."""
    try:
        return orjson.loads(body), True
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(body), False  # lets NaN and Infinity through, so that they are refused by their field's name
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
    for i, entry in enumerate(entries):
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


def is_logprob(value: Any) -> bool:
    """A finite number up to 0; a bool is none."""
    return type(value) in (int, float) and math.isfinite(value) and value <= LARGEST_LOGPROB


def short(value: Any) -> str:
    """A value for an error, cut to 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
