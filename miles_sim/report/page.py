"""A run as one HTML page that needs nothing else: no request, no time, the same bytes for the same run.

The matrix and what is wrong are in the page itself; each case's trees and samples are data that the page's own
script draws when the case is opened. `page.html.j2` is the page, `page.css` and `page.js` are put into it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from miles_sim.report.console import closing_line
from miles_sim.report.groups import Group, groups
from miles_sim.report.marks import marked_sample
from miles_sim.report.page_case import case_data
from miles_sim.verify.report import FAILING, Report, Result, Verdict
from miles_sim.verify.rule import Case

FOLDER = Path(__file__).parent

SYMBOLS = {
    Verdict.PASS: "✓",
    Verdict.VIOLATION: "✗",
    Verdict.KNOWN: "≈",
    Verdict.UNEXPECTED_PASS: "!",
    Verdict.NOT_APPLICABLE: "·",
    Verdict.BLOCKED: "⊘",
    Verdict.VACUOUS: "∅",
}
"""One character a verdict, so that no verdict is told by colour alone."""


@dataclass(frozen=True)
class Row:
    """One case of the matrix: a verdict for each contract, None where there was nothing to ask."""

    name: str
    title: str
    cells: tuple[Verdict | None, ...]
    played: bool


def page(report: Report, cases: Mapping[str, Case]) -> str:
    """The whole document."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        report=report,
        closing=closing_line(report),
        verdicts=_counts(report),
        symbols={verdict.value: symbol for verdict, symbol in SYMBOLS.items()},
        areas=_areas(report),
        rows=_rows(report, cases),
        groups=[_group(group, cases) for group in groups(report, FAILING | {Verdict.KNOWN})],
        data=_script_data({"cases": _cases(report, cases), "contracts": [c.id for c in report.contracts]}),
        style=(FOLDER / "page.css").read_text(encoding="utf-8"),
        script=(FOLDER / "page.js").read_text(encoding="utf-8"),
    )


def _counts(report: Report) -> list[tuple[str, str, str, int]]:
    """(value, words, symbol, count) of each verdict that the run has, and of violation in any case."""
    count = report.summary.model_dump(by_alias=True)
    return [
        (verdict.value, verdict.value.replace("_", " "), SYMBOLS[verdict], count[verdict.value])
        for verdict in Verdict
        if count[verdict.value] or verdict is Verdict.VIOLATION
    ]


def _areas(report: Report) -> list[tuple[str, int]]:
    """Areas in the contracts' order, each with its number of contracts."""
    found: dict[str, int] = {}
    for contract in report.contracts:
        area = contract.id.split("/", 1)[0]
        found[area] = found.get(area, 0) + 1
    return list(found.items())


def _rows(report: Report, cases: Mapping[str, Case]) -> list[Row]:
    verdicts: dict[str, dict[str, Verdict]] = {}
    for result in report.results:
        verdicts.setdefault(result.scenario, {})[result.contract] = result.verdict
    titles = {case.scenario.name: case.scenario.title for case in cases.values()}
    ids = [contract.id for contract in report.contracts]
    return [
        Row(name, titles.get(name.split("/")[0], ""), tuple(told.get(id) for id in ids), name in cases)
        for name, told in verdicts.items()
    ]


def _group(group: Group, cases: Mapping[str, Case]) -> dict[str, Any]:
    hit = group.telling(cases)
    case = cases.get(hit.result.scenario) if hit.finding.tokens else None
    return {
        "contract": group.contract,
        "finding": hit.finding,
        "result": hit.result,
        "marked": marked_sample(case, hit.finding) if case is not None else [],
        "count": len(group.hits),
        "cases": group.cases,
        "played": [name for name in group.cases if name in cases],
        "verdicts": sorted({found.result.verdict.value for found in group.hits}),
    }


def _cases(report: Report, cases: Mapping[str, Case]) -> dict[str, Any]:
    wrong: dict[str, list[Result]] = {}
    for result in report.results:
        if result.findings or result.verdict in FAILING:
            wrong.setdefault(result.scenario, []).append(result)
    return {name: case_data(case, wrong.get(name, ())) for name, case in cases.items()}


def _script_data(data: Any) -> str:
    """JSON that may stand in a script element, whatever strings it holds."""
    return orjson.dumps(data).decode().replace("<", "\\u003c").replace("&", "\\u0026")
