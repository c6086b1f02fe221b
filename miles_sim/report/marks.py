"""A sample with the tokens that a finding means marked, the way a compiler points at a line."""

from collections.abc import Iterator, Sequence

from miles_sim.report.samples import HEADINGS, aligned, sample_head, segment_rows
from miles_sim.report.text import columns, cut
from miles_sim.tokenizer import ByteTokenizer
from miles_sim.verify.report import Finding
from miles_sim.verify.rule import Case

WINDOW = 96
"""Columns of text around the first marked token of a segment."""
BEFORE = 24
"""Columns of it that stand before that token."""

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
    meant = [at for begin, end in stretches for at in range(max(begin, start), min(end, start + len(ids)))]
    if not meant:
        return []
    pieces = [piece(id, tokenizer) for id in ids]
    first = meant[0] - start
    begin = _back(pieces, first, BEFORE)
    text, carets = ("…", " ") if begin else ("", "")
    marked = set(meant)
    for place, word in _within(pieces, begin, WINDOW):
        text += word
        carets += ("^" if place + start in marked else " ") * len(word)
    many = f"  {len(meant)} ids" if len(meant) > 1 else ""
    indent = f"    at {meant[0]}  "
    return [indent + text, (" " * len(indent) + carets).rstrip() + many]


def piece(id: int, tokenizer: ByteTokenizer) -> str:
    """One id on one line; an id outside the vocabulary by its number."""
    try:
        return cut(tokenizer.name(id), 40)
    except (IndexError, ValueError):
        return f"⟨{id}⟩"


def _back(pieces: Sequence[str], first: int, width: int) -> int:
    """How far before `first` a window may begin that has `width` columns before it."""
    while first and width >= len(pieces[first - 1]):
        first -= 1
        width -= len(pieces[first])
    return first


def _within(pieces: Sequence[str], begin: int, width: int) -> Iterator[tuple[int, str]]:
    """Pieces from `begin` on as long as they fit."""
    for place in range(begin, len(pieces)):
        width -= len(pieces[place])
        if width < 0:
            return
        yield place, pieces[place]
