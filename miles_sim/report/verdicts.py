"""Verdict pages as Markdown, made from committed digests: nothing in them is typed by hand."""

from collections.abc import Iterator, Sequence

from miles_sim.verify.digest import Digest, History, Repair, Tally

PULL = "https://github.com/radixark/miles/pull"
COMMIT = "https://github.com/radixark/miles/commit"

_OPENING = """# Verdicts

What the built-in pack says of several implementations. Made by `miles-sim verdicts docs/verdicts`; do not edit.

A cell counts cases: **violated**/judged. `ok`: no case violates it. `·`: nothing to judge, or the target has no such
part. `blocked`: something below it failed wherever it looks. `–`: the contract is younger than the run.
"""
_BUGS = """
## Bugs of the public history

Each was fixed by the pull request named. `before` is the commit before it, `after` the fix; a cell names the contracts
whose violations the fix makes fewer, with the number of cases before and after.
"""


def verdict_page(digests: Sequence[Digest], history: History | None = None) -> str:
    """The whole page: who was judged, contracts × targets, bugs before and after their fixes."""
    lines = [_OPENING, *_targets(digests), "", *_contracts(digests)]
    if history is not None:
        lines += [_BUGS, f"Date of the runs: {history.date}.", "", *_history(history)]
    return "\n".join(lines) + "\n"


def area_table(digests: Sequence[Digest]) -> str:
    """Areas × targets: how many contracts of the area are violated, of how many that were judged."""
    areas = sorted({id.split("/")[0] for found in digests for id in found.contracts})
    lines = [row_line(["area", *(found.label for found in digests)]), row_line(["---"] * (1 + len(digests)))]
    lines += [row_line([area, *(_area_cell(found, area) for found in digests)]) for area in areas]
    return "\n".join(lines) + "\n"


def _targets(digests: Sequence[Digest]) -> Iterator[str]:
    yield row_line(["column", "target", "Python", "date", "cases"])
    yield row_line(["---"] * 5)
    for found in digests:
        yield row_line([found.label, f"{found.target} {found.version}", found.python, found.date, str(found.cases)])


def _contracts(digests: Sequence[Digest]) -> Iterator[str]:
    yield row_line(["contract", *(found.label for found in digests)])
    yield row_line(["---"] * (1 + len(digests)))
    for id in sorted({id for found in digests for id in found.contracts}):
        yield row_line([f"`{id}`", *(_cell(found.contracts.get(id)) for found in digests)])


def _cell(tally: Tally | None) -> str:
    if tally is None:
        return "–"
    if tally.violated:
        return f"**{tally.violated}**/{tally.violated + tally.passed}"
    if tally.passed:
        return "ok"
    return "blocked" if tally.blocked else "·"


def _area_cell(found: Digest, area: str) -> str:
    judged = [tally for id, tally in found.contracts.items() if id.startswith(f"{area}/") and _judged(tally)]
    broken = sum(tally.violated > 0 for tally in judged)
    if not judged:
        return "not applicable"
    return f"**{broken} of {len(judged)} violated**" if broken else f"{len(judged)} hold"


def _judged(tally: Tally) -> bool:
    return bool(tally.violated or tally.passed)


def _history(history: History) -> Iterator[str]:
    yield row_line(["pull request", "what went wrong", "before → after", "remark"])
    yield row_line(["---"] * 4)
    for repair in history.repairs:
        pull = f"[#{repair.pull}]({PULL}/{repair.pull}) [`{repair.fix}`]({COMMIT}/{repair.fix})"
        yield row_line([pull, repair.symptom, _cured(repair), repair.note])


def _cured(repair: Repair) -> str:
    if repair.before is None or repair.after is None:
        return "not played"
    cured = [f"`{id}` {before} → {after}" for id, (before, after) in sorted(repair.cured.items())]
    return "<br>".join(cured) or "no difference"


def row_line(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
