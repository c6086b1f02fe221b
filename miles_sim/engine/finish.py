"""Where a generation ends and why."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

from miles_sim.engine.stop_regex import first_match
from miles_sim.tokenizer import ByteTokenizer


class Bounds(NamedTuple):
    """What can end a generation before the model has said all."""

    max_new_tokens: int
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    """The tokenizer's stop tokens and the request's `stop_token_ids`."""
    stop_regex: tuple[str, ...] = ()
    abort_after: int | None = None
    length_first: bool = True
    """At the same place `max_new_tokens` wins over a stop token or string; else it comes last."""
    stop_string_first: bool = True
    """At the same place a stop string wins over a stop token."""


class Ending(NamedTuple):
    """`length` ids of the draft are the output; `reason` as `/generate` gives it."""

    length: int
    reason: dict[str, Any]


ABORTED = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
"""SGLang's reason for a running request that is aborted (schedule_batch.py `FINISH_ABORT`)."""


def ending(draft: Sequence[int], bounds: Bounds, tokenizer: ByteTokenizer) -> Ending:
    """The first bound that the drafted ids meet, checked id by id.

    `draft` must be long enough to meet one. Where one id meets several: schedule_batch.py `check_finished`, later
    `update_finish_state`.
    """
    limit = bounds.max_new_tokens
    end, reason = limit, {"type": "length", "length": limit}
    before = max(limit - 1, 0) if bounds.length_first else limit
    token = None
    if not bounds.stop_ids.isdisjoint(draft[:before]):
        token = next(n for n, i in enumerate(draft, start=1) if i in bounds.stop_ids)
    if token is not None:
        end, reason = token, {"type": "stop", "matched": draft[token - 1]}
    if bounds.stop:
        string = _first_stop(draft[: min(end, before)], bounds.stop, tokenizer)
        if string is not None and (string[0] < end or token is None or bounds.stop_string_first):
            end, reason, token = string[0], {"type": "stop", "matched": string[1]}, None
    if bounds.stop_regex:
        pattern = first_match(draft[: min(end, before)], bounds.stop_regex, bounds.stop, tokenizer)
        by_token = token is not None and bounds.stop_string_first
        if pattern is not None and (pattern[0] < end or by_token or reason["type"] == "length"):
            end, reason = pattern[0], {"type": "stop", "matched": pattern[1]}
    if len(draft) < end:
        raise ValueError(f"draft: {len(draft)} ids end before any bound does")
    if bounds.abort_after is not None and bounds.abort_after < end:
        return Ending(bounds.abort_after, dict(ABORTED))
    return Ending(end, reason)


def _first_stop(ids: Sequence[int], strings: tuple[str, ...], tokenizer: ByteTokenizer) -> tuple[int, str] | None:
    """(ids read, string) of the earliest stop string; of several at one place the first in the request's order."""
    text = tokenizer.decode(ids)
    found = [
        (_reads(ids, string, tokenizer), order, string)
        for order, string in enumerate(strings)
        if string and string in text
    ]
    if not found:
        return None
    place, _, string = min(found)
    return place, string


def _reads(ids: Sequence[int], string: str, tokenizer: ByteTokenizer) -> int:
    """Fewest ids whose text has `string`; more ids never lose it."""

    def has(count: int) -> bool:
        return string in tokenizer.decode(ids[:count])

    return bisect_left(range(len(ids) + 1), True, key=has)


class Trim(NamedTuple):
    """What of a reply's text is told (detokenizer_manager.py `trim_matched_stop`)."""

    no_stop_trim: bool = False
    """The stop token or string that was matched stays."""
    skip_special_tokens: bool = True
    behind_string: bool = True
    """Where a stop string stays, the text ends with it; else with the id that completes it."""


def text_of(output_ids: Sequence[int], reason: dict[str, Any], tokenizer: ByteTokenizer, trim: Trim) -> str:
    """The reply's text."""
    kept, matched = trim.no_stop_trim, reason.get("matched")
    ids = output_ids[:-1] if isinstance(matched, int) and matched and not kept else output_ids
    text = tokenizer.decode(ids, skip_special_tokens=trim.skip_special_tokens)
    if not isinstance(matched, str) or matched not in text or (kept and not trim.behind_string):
        return text
    end = text.index(matched)
    return text[: end + len(matched)] if kept else text[:end]
