"""The witness index: how often each contract looked at something in each scenario, so that lost coverage shows."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from miles_sim.verify.report import Report, Result

COMMAND = "miles-sim contracts --witnesses"
NONE = "·"
WIDTH = 6


def witness_text(report: Report) -> str:
    """One table an area, one row a scenario; a cell is `v1+v2` where both were played, `·` where nothing was seen.

    A change of one contract changes its own column and total alone, a change of one scenario its own rows.
    """
    by_area: dict[str, list[str]] = defaultdict(list)
    for contract in report.contracts:
        by_area[contract.id.split("/", 1)[0]].append(contract.id)
    seen = _seen(report.results)
    parts = [f"Witnesses: what each contract looked at in each scenario, under v1+v2. Written by `{COMMAND}`."]
    parts += ["\n".join(_area(area, ids, report, seen)) for area, ids in by_area.items()]
    return "\n\n".join(parts) + "\n"


Seen = dict[tuple[str, str], dict[str, int]]
"""(scenario, contract) to sessions to witnesses."""


def _seen(results: Iterable[Result]) -> Seen:
    found: Seen = defaultdict(dict)
    for result in results:
        scenario, _, sessions = result.scenario.partition("/")
        found[scenario, result.contract][sessions] = result.witnesses
    return found


def _area(area: str, ids: Sequence[str], report: Report, seen: Seen) -> list[str]:
    totals = {contract.id: contract.witnesses for contract in report.contracts}
    letters = [_letter(number) for number in range(len(ids))]
    lines = [f"# {area}"]
    lines += [f"{letter}  {id.split('/', 1)[1]}  {totals[id]}" for letter, id in zip(letters, ids, strict=True)]
    scenarios = sorted({scenario for scenario, _ in seen})
    wide = max(map(len, scenarios), default=0)
    lines.append(_row("", wide, letters))
    for scenario in scenarios:
        cells = [_cell(seen.get((scenario, id), {})) for id in ids]
        if set(cells) != {NONE}:
            lines.append(_row(scenario, wide, cells))
    return lines


def _row(name: str, wide: int, cells: Iterable[str]) -> str:
    return name.ljust(wide) + "".join(cell.rjust(WIDTH) for cell in cells)


def _cell(sessions: dict[str, int]) -> str:
    """Both sessions' counts; the joint one of a contract that compares them."""
    if not any(sessions.values()):
        return NONE
    return "+".join(str(sessions[session]) for session in sorted(sessions))


def _letter(number: int) -> str:
    """a … z, aa, ab, …"""
    head, last = divmod(number, 26)
    return (_letter(head - 1) if head else "") + chr(ord("a") + last)
