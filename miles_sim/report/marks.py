"""A sample with the tokens that a finding means marked, the way a compiler points at a line."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from miles_sim.report.samples import HEADINGS, aligned, sample_head, segment_rows
from miles_sim.report.text import columns, cut
from miles_sim.tokenizer import ByteTokenizer, TokenizerError
from miles_sim.verify.report import Finding
from miles_sim.verify.rule import Case

WINDOW = 96
"""Columns of text around the first marked token of a segment."""
BEFORE = 24
"""Columns of it that stand before that token."""

LONGEST_CHARACTER = 4
"""Bytes of one character in UTF-8, at most."""

Stretches = Sequence[tuple[int, int]]


def marked_sample(case: Case, finding: Finding) -> list[str]:
    """The sample that a finding is about, segment by segment; below each, what of it is meant. Empty: about none."""
    rollout = next((r for r in case.rollouts if r.number == finding.rollout), None)
    if rollout is None or finding.sample is None or finding.sample >= len(rollout.samples):
        return []
    sample = rollout.samples[finding.sample]
    tokenizer = ByteTokenizer(case.scenario.engine.tokenizer)
    rows = segment_rows(sample, rollout, aligned(sample, rollout, tokenizer), tokenizer)
    head, *told = columns([HEADINGS, *(row for _, row in rows)], indent="  ")
    lines = [sample_head(finding.sample, sample), head]
    for (part, _), line in zip(rows, told, strict=True):
        ids = sample.tokens[part.start : part.end]
        lines += [line, *mark_lines(ids, part.start, finding.tokens, tokenizer)]
    return lines


def mark_lines(ids: Sequence[int], start: int, stretches: Stretches, tokenizer: ByteTokenizer) -> list[str]:
    """The text around the first of `ids` (which begin at position `start`) that a stretch holds, `^` below each."""
    meant = {at for begin, end in stretches for at in range(max(begin, start), min(end, start + len(ids)))}
    if not meant:
        return []
    told = pieces(ids, start, tokenizer)
    first = next(number for number, found in enumerate(told) if found.holds(meant))
    begin = _back(told, first, BEFORE)
    text, carets = ("…", " ") if begin else ("", "")
    for found in _within(told, begin, WINDOW):
        text += found.text
        carets += ("^" if found.holds(meant) else " ") * len(found.text)
    many = f"  {len(meant)} ids" if len(meant) > 1 else ""
    indent = f"    at {min(meant)}  "
    return [indent + text, (" " * len(indent) + carets).rstrip() + many]


@dataclass(frozen=True)
class Piece:
    """Ids that can be shown: one, or the several whose bytes make up one character."""

    at: int
    """Position of the first of them."""
    count: int
    text: str
    """On one line, never empty."""

    def holds(self, positions: Container[int]) -> bool:
        """One of its ids stands at one of `positions`."""
        return any(at in positions for at in range(self.at, self.at + self.count))


def pieces(ids: Sequence[int], start: int, tokenizer: ByteTokenizer) -> list[Piece]:
    """All of `ids`, which begin at position `start`; an id outside the vocabulary stands as its number."""
    found: list[Piece] = []
    place = 0
    while place < len(ids):
        count, text = _character(ids[place : place + LONGEST_CHARACTER], tokenizer)
        found.append(Piece(start + place, count, cut(text, 40) or "∅"))
        place += count
    return found


def _character(ids: Sequence[int], tokenizer: ByteTokenizer) -> tuple[int, str]:
    """How many of `ids` can be shown together, and as what."""
    for count in range(1, len(ids) + 1):
        try:
            text = tokenizer.decode(ids[:count])
        except TokenizerError:
            break
        if "\N{REPLACEMENT CHARACTER}" not in text:
            return count, text
    try:
        return 1, tokenizer.name(ids[0])
    except (IndexError, ValueError):
        return 1, f"⟨{ids[0]}⟩"


def _back(told: Sequence[Piece], first: int, width: int) -> int:
    """How far before `first` a window may begin that has `width` columns before it."""
    while first and width >= len(told[first - 1].text):
        first -= 1
        width -= len(told[first].text)
    return first


def _within(told: Sequence[Piece], begin: int, width: int) -> Iterator[Piece]:
    """Pieces from `begin` on as long as they fit."""
    for found in told[begin:]:
        width -= len(found.text)
        if width < 0:
            return
        yield found
