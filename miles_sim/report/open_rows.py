"""The page of open bugs as Markdown, made from a committed document: nothing in it is typed by hand."""

from collections.abc import Iterator

from miles_sim.report.verdicts import row_line
from miles_sim.verify.open_rows import OpenRow, OpenRows, Sign

_SHOWN = 3
"""Cases named of each sign."""


def open_rows_page(rows: OpenRows) -> str:
    """The whole page: each bug, the contracts that report it, where, and what they say."""
    flagged = sum(row.flagged for row in rows.rows)
    lines = [
        "# Open bugs under contract",
        "",
        f"Bugs that are known in {rows.label}, and the contracts of the built-in pack that report them: {flagged} of",
        f"{len(rows.rows)}. `row` names the bug in `tests/defects/bugs.md`, which says what is planted in its place.",
        f"Made by `miles-sim rows docs/open-rows.json`; do not edit. Date of the run: {rows.date}.",
        "",
        row_line(["row", "what is wrong", "contract", "scenario", "verdict"]),
        row_line(["---"] * 5),
        *(line for row in rows.rows for line in _row(row)),
    ]
    return "\n".join(lines) + "\n"


def _row(row: OpenRow) -> Iterator[str]:
    name, what = row.row, row.what + (f" *{row.note}*" if row.note else "")
    if not row.signs:
        yield row_line([name, what, "none", "", "not reported"])
    for sign in row.signs:
        yield row_line([name, what, f"`{sign.contract}`", _cases(sign), _verdict(sign)])
        name = what = ""


def _cases(sign: Sign) -> str:
    shown = ", ".join(f"`{case}`" for case in sign.violated[:_SHOWN]) or f"`{sign.scenario}`"
    more = len(sign.violated) - _SHOWN
    return shown + (f" and {more} more" if more > 0 else "")


def _verdict(sign: Sign) -> str:
    if sign.violated:
        return f"**violated** in {len(sign.violated)}"
    return f"holds in {sign.held}" if sign.held else "not seen"
