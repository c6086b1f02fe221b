"""Where a path's ids differ from its conversation rendered in one piece."""

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from miles_sim.rollout.record import Record
from miles_sim.tokenizer import ChatTokenizer


def template_mismatch(path: Sequence[Record], tokenizer: ChatTokenizer) -> list[dict[str, Any]]:
    """Differences between what the engine was given between its replies and the canonical rendering, in order.

    Compared are ids, never text; the replies themselves are left out, as sampled ids need not be canonical ones,
    and so are `trailing_ids` at the end of what stands between two replies. Empty: none.
    """
    try:
        canonical = _canonical(path, tokenizer)
    except Exception as error:  # any tokenizer may be plugged in, and a figure must not cost a sample
        detail = f"{type(error).__name__}: {error}"
        return [
            {"type": "render_failed", "segment_index": -1, "expected_text": "", "actual_text": "", "detail": detail}
        ]
    haystack, at = _packed(canonical), 0
    for number, segment in enumerate(_segments(path)):
        wanted = _trimmed(segment, tokenizer.trailing_ids) if number else list(segment)
        found = _find(haystack, wanted, at)
        if found < 0 or (number == 0 and found != 0):
            return [_entry(number, canonical[at : at + len(wanted)], wanted, at, tokenizer)]
        at = found + len(wanted)
    return []


def _canonical(path: Sequence[Record], tokenizer: ChatTokenizer) -> list[int]:
    final = path[-1]
    return tokenizer.render(
        [*final.request_messages, final.message],
        tools=final.tools,
        add_generation_prompt=False,
        template_options=final.request_options or None,
    )


def _segments(path: Sequence[Record]) -> list[Sequence[int]]:
    """What was not sampled: the first prompt, then what each later prompt adds to the reply before it."""
    segments: list[Sequence[int]] = [path[0].prompt_ids]
    for before, record in pairwise(path):
        start = len(before.prompt_ids)
        reply = before.output_ids
        kept = next(
            (n for n, (a, b) in enumerate(zip(reply, record.prompt_ids[start:], strict=False)) if a != b), len(reply)
        )
        segments.append(record.prompt_ids[start + kept :])
    return segments


def _trimmed(ids: Sequence[int], trailing: frozenset[int]) -> list[int]:
    end = len(ids)
    while end and ids[end - 1] in trailing:
        end -= 1
    return list(ids[:end])


def _find(haystack: bytes, wanted: Sequence[int], at: int) -> int:
    """Where `wanted` begins among the packed ids, at position `at` or later; -1 if nowhere."""
    needle = _packed(wanted)
    found = haystack.find(needle, at * 4)
    while found > 0 and found % 4:
        found = haystack.find(needle, found + 1)
    return found if found < 0 else found // 4


def _packed(ids: Sequence[int]) -> bytes:
    return array("i", ids).tobytes()


def _entry(
    number: int, expected: Sequence[int], actual: Sequence[int], at: int, tokenizer: ChatTokenizer
) -> dict[str, Any]:
    return {
        "type": "non_assistant_text",
        "segment_index": number,
        "expected_text": tokenizer.decode(expected),
        "actual_text": tokenizer.decode(actual),
        "detail": f"the rendering has no such ids at {at} or later",
    }
