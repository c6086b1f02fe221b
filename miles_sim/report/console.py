"""A verify run on the console: scope, trees, contracts and verdicts, what is wrong, one closing line."""

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from miles_sim.report.groups import Group, groups
from miles_sim.report.marks import marked_sample
from miles_sim.report.text import cut
from miles_sim.report.tree import branching, tree_lines
from miles_sim.verify.report import Report, Verdict
from miles_sim.verify.rule import Case

PLAIN_WIDTH = 120
"""Columns where the output is no terminal and `COLUMNS` says nothing."""
WHOLE_GROUPS = 4
"""Shapes of violation that are shown with the sample and its offending tokens."""
BRIEF_GROUPS = 16
"""Shapes that are shown with what was expected and found; those beyond are told in one line each."""
SHOWN_NAMES = 6
"""Cases that are named for each shape."""

_STYLES = {
    Verdict.PASS: "green",
    Verdict.VIOLATION: "bold red",
    Verdict.KNOWN: "yellow",
    Verdict.UNEXPECTED_PASS: "bold red",
    Verdict.NOT_APPLICABLE: "dim",
    Verdict.BLOCKED: "yellow",
    Verdict.VACUOUS: "bold red",
}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """What cannot be written is the command's to tell: the library's own way ends with the code of a violation."""
        raise


def console(file: IO[str] | None = None) -> Console:
    """A console that is plain, and wide enough, where `file` is no terminal."""
    file = file or sys.stdout
    width = None if file.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    return _Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def print_report(report: Report, cases: Mapping[str, Case], out: Console, *, quiet: bool = False) -> None:
    """The whole report; `quiet`: what is wrong and the closing line alone."""
    if not quiet:
        _opening(report, out)
        _trees(cases, out)
        _faults(report, out)
        _contracts(report, out)
    _wrong(report, cases, out)
    out.print(closing_line(report), style="bold green" if report.holds else "bold red", soft_wrap=True)


def print_violation(report: Report, cases: Mapping[str, Case], contract: str, out: Console) -> None:
    """One contract's violations in a run of one scenario: the tree, then each shape in full."""
    for case in list(cases.values())[-1:]:
        for line in tree_lines(case):
            out.print(line, soft_wrap=True)
        out.print()
    for group in groups(report):
        if group.contract.id == contract:
            _group(group, cases, out, whole=True, repro=False)


def closing_line(report: Report) -> str:
    """The run in one line: what it says, over how much, with how many of each verdict."""
    count = report.summary.model_dump(by_alias=True)
    judged = len({result.scenario for result in report.results})
    over = f"{_number(len(report.contracts), 'contract')}, {_number(judged, 'case')}"
    told = [f"{count['pass']} passed", f"{count['violation']} violated"]
    told += [f"{count[name]} {name.replace('_', ' ')}" for name in list(count)[2:] if count[name]]
    told += [f"{len(report.unmatched_baseline)} baseline entries unanswered"] if report.unmatched_baseline else []
    verdict = "holds" if report.holds else "does not hold"
    return f"{report.target.name} {verdict}: {over}: {', '.join(told)}"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _opening(report: Report, out: Console) -> None:
    target = report.target
    optimized = " -O" if target.optimize else ""
    out.print(f"{target.name} {target.version}, Python {target.python}{optimized}, seed {report.seed}", style="bold")
    out.print(report.scope, style="dim")
    for capability, reason in sorted(target.absent.items()):
        out.print(f"not there: {capability}: {reason}", style="dim", soft_wrap=True)
    if target.stand_ins:
        out.print(f"stood in for: {', '.join(target.stand_ins)}", style="dim", soft_wrap=True)
    out.print()


def _trees(cases: Mapping[str, Case], out: Console) -> None:
    """The first rollout's tree of each scenario that branches; further rollouts and sessions play the same plan."""
    for name, case in {case.scenario.name: case for case in cases.values() if branching(case)}.items():
        out.print(f"{name}: {case.scenario.title}", style="bold", soft_wrap=True)
        for line in tree_lines(case, rollouts=1)[1:]:
            if not line.startswith("…"):
                out.print(line, soft_wrap=True)
        out.print()


def _faults(report: Report, out: Console) -> None:
    """A line a case in which faults fired, their kinds in the order of places; then what could not strike."""
    by_case: dict[str, list[str]] = defaultdict(list)
    for fired in report.fired:
        if not fired.could_not:
            by_case[fired.scenario].append(fired.kind)
    for name, kinds in by_case.items():
        told = ", ".join(f"{kind} ×{count}" if count > 1 else kind for kind, count in Counter(kinds).items())
        out.print(f"fired in {name}: {cut(told, 160)}", soft_wrap=True)
    for fired in report.fired:
        if fired.could_not:
            out.print(f"{fired.kind} could not strike in {fired.scenario}: {cut(fired.could_not, 100)}", soft_wrap=True)
    if report.fired:
        out.print()


def _contracts(report: Report, out: Console) -> None:
    verdicts: dict[str, Counter[Verdict]] = defaultdict(Counter)
    for result in report.results:
        verdicts[result.contract][result.verdict] += 1
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("contract", "verdict", "seen", "cases"):
        table.add_column(heading, no_wrap=heading != "cases", justify="right" if heading == "seen" else "left")
    for contract in report.contracts:
        table.add_row(
            contract.id,
            Text(_words(contract.verdict), style=_STYLES[contract.verdict]),
            str(contract.witnesses),
            contract.reason or _tally(verdicts[contract.id]),
        )
    out.print(table)
    out.print()


def _tally(verdicts: Mapping[Verdict, int]) -> str:
    return ", ".join(
        f"{verdicts[v]} {_words(v)}" for v in Verdict if verdicts.get(v) and v is not Verdict.NOT_APPLICABLE
    )


def _wrong(report: Report, cases: Mapping[str, Case], out: Console) -> None:
    found = groups(report)
    for number, group in enumerate(found[:BRIEF_GROUPS]):
        _group(group, cases, out, whole=number < WHOLE_GROUPS)
    for group in found[BRIEF_GROUPS:]:
        out.print(f"{group.contract.id}: {group.shape}: {_counted(group)}", style="red", soft_wrap=True)
    if found[BRIEF_GROUPS:]:
        out.print()
    for reason, ids in _vacuous(report).items():
        out.print(f"vacuous: {', '.join(ids)}", style=_STYLES[Verdict.VACUOUS], soft_wrap=True)
        out.print(f"  {reason}", soft_wrap=True)
        out.print()
    for entry in report.unmatched_baseline:
        out.print(f"baseline: {entry} answers to nothing in this run", style="bold red", soft_wrap=True)


def _vacuous(report: Report) -> dict[str, list[str]]:
    """Reason to the contracts that looked at nothing for it."""
    found: dict[str, list[str]] = defaultdict(list)
    for contract in report.contracts:
        if contract.verdict is Verdict.VACUOUS:
            found[contract.reason].append(contract.id)
    return found


def _group(group: Group, cases: Mapping[str, Case], out: Console, *, whole: bool, repro: bool = True) -> None:
    """One shape of violation: the most telling finding, and where else it was found."""
    contract, hit = group.contract, group.telling(cases)
    out.print(f"{contract.id} ({contract.severity}): {contract.statement}", style="bold red", soft_wrap=True)
    out.print(f"  {hit.finding.message}", style="bold", soft_wrap=True)
    out.print(f"  {hit.result.scenario}, {hit.finding.where}", soft_wrap=True)
    if hit.finding.expected or hit.finding.found:
        out.print(f"    expected  {cut(hit.finding.expected, 200)}", soft_wrap=True)
        out.print(f"    found     {cut(hit.finding.found, 200)}", soft_wrap=True)
    case = cases.get(hit.result.scenario)
    for line in marked_sample(case, hit.finding) if whole and case is not None else ():
        out.print(f"    {line}", style="bold red" if line.lstrip().startswith("^") else "", soft_wrap=True)
    if repro and hit.result.repro:
        out.print(f"    {hit.result.repro}", style="cyan", soft_wrap=True)
    if len(group.hits) > 1:
        out.print(f"  {_counted(group)}", soft_wrap=True)
    out.print()


def _counted(group: Group) -> str:
    """How often, and in which cases: `4 findings in 3 cases: a/v1, a/v2, b/v2`."""
    count, names = len(group.hits), group.cases
    told = ", ".join(names[:SHOWN_NAMES]) + (f" and {len(names) - SHOWN_NAMES} more" if names[SHOWN_NAMES:] else "")
    return f"{_number(count, 'finding')} in {_number(len(names), 'case')}: {told}"


def _words(verdict: Verdict) -> str:
    return verdict.value.replace("_", " ")
