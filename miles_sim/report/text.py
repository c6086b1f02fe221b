"""Small pieces of plain text: cut, counted, digested. Nothing here depends on time, ports or chance."""

import math
import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import Any

_URL = re.compile(r"https?://[^\s'\"<>)]+")
_LONG_HEX = re.compile(r"\b[0-9a-f]{8}(?:-?[0-9a-f]{4}){2,}[0-9a-f-]*\b")


def cut(text: str, width: int) -> str:
    """`text` on one line of at most `width` characters: line ends as `↵`, the middle left out."""
    text = text.replace("\r", "␍").replace("\n", "↵").replace("\t", "⇥")
    if len(text) <= width:
        return text
    tail = (width - 1) // 3
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def runs(mask: Sequence[int]) -> str:
    """A mask by its runs: `0×34 1×12`."""
    return " ".join(f"{value}×{len(list(run))}" for value, run in groupby(mask)) or "–"


def digest(values: Iterable[Any] | None) -> str:
    """Length and eight hex digits of a bulk array's values, or `–` where it is absent."""
    if values is None:
        return "–"
    words = [repr(value) for value in values]
    return f"{len(words)} {blake2b(','.join(words).encode(), digest_size=4).hexdigest()}"


def number(value: float | None) -> str:
    """A figure to four digits; `unavailable` where there is none."""
    if value is None:
        return "unavailable"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def beside(found: float | None, true: float | None) -> str:
    """A figure that agrees with the truth, or both of them."""
    close = found is not None and true is not None and math.isclose(found, true, rel_tol=1e-9)
    return number(found) if close or found == true else f"{number(found)} (true: {number(true)})"


def scrub(text: str) -> str:
    """`text` without addresses and drawn ids, which differ from run to run."""
    return _LONG_HEX.sub("‹id›", _URL.sub("‹url›", text))


def columns(rows: Sequence[Sequence[str]], *, indent: str = "", gap: str = "   ") -> list[str]:
    """`rows` as lines with aligned columns; a column that looks like figures stands to the right."""
    count = max((len(row) for row in rows), default=0)
    padded = [[*row, *[""] * (count - len(row))] for row in rows]
    widths = [max(len(row[i]) for row in padded) for i in range(count)]
    right = [all(re.fullmatch(r"[\d.]*", row[i]) for row in padded[1:]) for i in range(count)]
    lines = []
    for row in padded:
        cells = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True)]
        lines.append((indent + gap.join(cells)).rstrip())
    return lines
