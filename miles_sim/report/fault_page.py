"""The catalogue of faults as a Markdown page, and what targets make of each kind: nothing in it is typed by hand."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from miles_sim.faults.kind import Kind
from miles_sim.verify.report import Report, Verdict
from miles_sim.verify.survival import play_ends

Column = tuple[str, Mapping[str, str]]
"""A target's label, and kind to cell."""

_OPENING = """# Kinds of fault

Made by `miles-sim faults --page docs/faults`; do not edit. What the words mean: [faults.md](faults.md).

A target's cell tells of plays in which the kind strikes alone. `as declared`: what came of it is what the verdict says,
nothing false came out, the other rollout was whole. Else the contracts on faults that were violated. `does not end`:
the play was given up. `could not`: it found nothing to strike. `·`: the target has no such part, or was not asked.
"""
_HEADINGS = {"http": "HTTP"}
_BAD = frozenset({Verdict.VIOLATION, Verdict.KNOWN})


def cells(report: Report, kinds_of: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Kind to its cell, of a report over scenarios that hold one kind each (`kinds_of`: scenario to its kinds)."""
    fired: dict[str, bool] = {}
    for each in report.fired:
        fired[each.kind] = fired.get(each.kind, False) or not each.could_not
    broken: dict[str, set[str]] = defaultdict(set)
    for result in report.results:
        if result.verdict in _BAD and (result.contract.startswith("faults/") or result.contract == play_ends.id):
            for kind in kinds_of.get(result.scenario.split("/")[0], ()):
                broken[kind].add(result.contract)
    return {kind: _cell(fired.get(kind), broken.get(kind, set())) for kind in {*fired, *broken}}


def page(kinds: Iterable[Kind], columns: Sequence[Column]) -> str:
    """The whole page: a table a layer."""
    lines = [_OPENING]
    by_layer: dict[str, list[Kind]] = defaultdict(list)
    for kind in kinds:
        by_layer[kind.layer].append(kind)
    total = sum(map(len, by_layer.values()))
    lines.append(f"{total} kinds in {len(by_layer)} layers.")
    for layer, found in by_layer.items():
        heads = ["kind", "what happens", "verdict", "why", *(label for label, _ in columns)]
        lines += ["", f"## {_HEADINGS.get(layer, layer.capitalize())}", "", _row(heads), _row(["---"] * len(heads))]
        lines += [_row([*_told(kind), *(told.get(kind.name, "·") for _, told in columns)]) for kind in found]
    return "\n".join(lines) + "\n"


def _cell(fired: bool | None, broken: set[str]) -> str:
    if play_ends.id in broken:
        return "**does not end**"
    if broken - {"faults/fired"}:
        return ", ".join(f"**{id.removeprefix('faults/')}**" for id in sorted(broken - {"faults/fired"}))
    return "as declared" if fired else "could not"


def _told(kind: Kind) -> list[str]:
    other = "".join(f"; {session}: {verdict}" for session, verdict in kind.under.items())
    counters = f" ({', '.join(sorted(kind.counters))} may differ)" if kind.counters else ""
    return [f"`{kind.name}`", kind.statement, f"{kind.verdict}{other}", f"{kind.reason}{counters}"]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
