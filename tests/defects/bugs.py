"""Which defect does each public bug again, and which rules catch it.

Written by `python -m tests.defects.bugs > tests/defects/bugs.md`, from the root of the checkout.
"""

import asyncio
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from .bug_rows import FIXED, OPEN, THREADS
from .table import caught


@dataclass(frozen=True)
class Bug:
    """One bug: its source, what it was, and the defects that do it again; without any, `note` says why."""

    source: str
    what: str
    defects: tuple[str, ...]
    note: str


def bugs(rows: Iterable[tuple[str, str, str]]) -> tuple[Bug, ...]:
    """From rows of source, words, and defects (names, by space) or, behind a dash, the reason why there is none."""
    found = []
    for source, what, shown in rows:
        names, _, note = shown.partition("- ")
        found.append(Bug(source, what, tuple(names.split()), note))
    return tuple(found)


PARTS = {
    "Open in miles of 2026-08-21": bugs(OPEN),
    "Fixed in miles": bugs(FIXED),
    "Public threads, in miles and its peers": bugs(THREADS),
}


def document(found: dict[str, tuple[str, ...]]) -> str:
    """The committed page; `found`: defect name to the rules that caught it."""
    whole = [bug for part in PARTS.values() for bug in part]
    again = sum(bool(bug.defects) for bug in whole)
    lines = [
        f"{len(whole)} public bugs: {again} are done again by a planted defect, {len(whole) - again} cannot be and say "
        "why. The defects stand in table.md."
    ]
    for title, part in PARTS.items():
        lines += ["", f"## {title}", "", "| source | bug | defect | caught by |", "|---|---|---|---|"]
        lines += [_row(bug, found) for bug in part]
    return "\n".join(lines) + "\n"


def _row(bug: Bug, found: dict[str, tuple[str, ...]]) -> str:
    rules = sorted({rule for name in bug.defects for rule in found[name]})
    shown = ", ".join(bug.defects) or f"*none: {bug.note}*"
    also = f" *({bug.note})*" if bug.defects and bug.note else ""
    return f"| {bug.source} | {bug.what}{also} | {shown} | {', '.join(rules)} |"


if __name__ == "__main__":
    sys.stdout.write(document(asyncio.run(caught())))
