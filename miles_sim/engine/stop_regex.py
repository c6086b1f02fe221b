"""Where a generation meets a `stop_regex`."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

from miles_sim.engine.grammar.regex import parsed
from miles_sim.tokenizer import ByteTokenizer

_UNBOUNDED = 1 << 30
_GROWING = {"LITERAL", "NOT_LITERAL", "IN", "ANY", "BRANCH", "SUBPATTERN", "MAX_REPEAT", "MIN_REPEAT"}
"""Of these, a text that has a match keeps it however it goes on."""


def first_match(
    ids: Sequence[int], patterns: Sequence[str], stops: Sequence[str], tokenizer: ByteTokenizer
) -> tuple[int, str] | None:
    """(ids read, pattern) of the first place at which a pattern matches; of several there the first in order.

    At each id SGLang searches the text of the last ids, one more than the longest match or stop string may have, a
    character an id (schedule_batch.py `_check_str_based_finish`): so `^` is the beginning of that text.
    """
    longest = max((longest_match(pattern) for pattern in patterns), default=0)
    window = max(longest, max((len(tokenizer.encode(stop)) for stop in stops), default=0)) + 1
    found = [
        (place, order, pattern)
        for order, pattern in enumerate(patterns)
        if (place := _first(ids, pattern, window, tokenizer)) is not None
    ]
    if not found:
        return None
    place, _, pattern = min(found)
    return place, pattern


def _first(ids: Sequence[int], pattern: str, window: int, tokenizer: ByteTokenizer) -> int | None:
    compiled = re.compile(pattern)

    def matches(end: int) -> bool:
        return compiled.search(tokenizer.decode(ids[max(end - window, 0) : end])) is not None

    if window > len(ids) and _grows(parsed(pattern)):
        place = bisect_left(range(1, len(ids) + 1), True, key=matches) + 1
        return place if place <= len(ids) else None
    return next((end for end in range(1, len(ids) + 1) if matches(end)), None)


def _grows(tree: Iterable[tuple[Any, Any]]) -> bool:
    """A longer text never loses a match."""
    return all(
        str(kind) in _GROWING and all(_grows(inner) for inner in _inner(str(kind), value)) for kind, value in tree
    )


def _inner(kind: str, value: Any) -> Sequence[Any]:
    if kind == "BRANCH":
        branches: Sequence[Any] = value[1]
        return branches
    return [value[-1]] if kind in ("SUBPATTERN", "MAX_REPEAT", "MIN_REPEAT") else []


def longest_match(pattern: str) -> int:
    """Characters of the longest match, as the release reckons it (sampling_params.py `get_max_seq_length`)."""
    return min(_longest(parsed(pattern)), _UNBOUNDED)


def _longest(tree: Iterable[tuple[Any, Any]]) -> int:
    return sum(_longest_of(str(kind), value) for kind, value in tree)


def _longest_of(kind: str, value: Any) -> int:
    if kind in ("LITERAL", "IN", "ANY"):
        return 1
    if kind == "SUBPATTERN":
        return _longest(value[-1])
    if kind == "BRANCH":
        return max(map(_longest, value[1]))
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        most = value[1]
        return _UNBOUNDED if str(most) == "MAXREPEAT" else int(most) * _longest(value[2])
    return 0 if kind == "AT" else _UNBOUNDED
