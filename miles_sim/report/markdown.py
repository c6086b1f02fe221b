"""A run as Markdown, for a comment on a pull request: the verdict first, each shape of violation once."""

from collections.abc import Mapping, Sequence

from miles_sim.report.console import closing_line
from miles_sim.report.groups import Group, groups
from miles_sim.report.marks import marked_sample
from miles_sim.report.text import cut
from miles_sim.verify.report import Report, Verdict
from miles_sim.verify.rule import Case

LIMIT = 65_536
"""Characters that GitHub allows in one comment."""
SHOWN_GROUPS = 10
"""Shapes of violation with their sample; those beyond are in the table alone."""
SHOWN_ROWS = 60


def markdown(report: Report, cases: Mapping[str, Case]) -> str:
    """The whole comment, ending in a line end, never longer than `LIMIT`."""
    found = groups(report)
    parts = [_head(report), _table(found), _failures(report)]
    end = f"<sub>{_inline(report.scope)}</sub>"
    room = LIMIT - sum(len(part) + 2 for part in (*parts, end)) - 2
    for group in found[:SHOWN_GROUPS]:
        told = _details(group, cases)
        if len(told) + 2 <= room:
            parts.append(told)
            room -= len(told) + 2
    return "\n\n".join(part for part in (*parts, end) if part) + "\n"


def _head(report: Report) -> str:
    target = report.target
    mark = "✅" if report.holds else "❌"
    where = f"Python {target.python}{' -O' if target.optimize else ''}, seed {report.seed}"
    return f"### {mark} {_inline(closing_line(report))}\n\n{_inline(f'{target.name} {target.version}, {where}')}"


def _table(found: Sequence[Group]) -> str:
    if not found:
        return ""
    rows = ["| contract | severity | what | cases |", "|---|---|---|---|"]
    for group in found[:SHOWN_ROWS]:
        names = group.cases
        told = ", ".join(f"`{name}`" for name in names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")
        rows.append(
            f"| `{group.contract.id}` | {group.contract.severity} | {_inline(cut(group.shape, 200))} | {told} |"
        )
    if found[SHOWN_ROWS:]:
        rows.append(f"| … | | {len(found) - SHOWN_ROWS} more | |")
    return "\n".join(rows)


def _failures(report: Report) -> str:
    """What fails the run without being a violation."""
    vacuous = [contract.id for contract in report.contracts if contract.verdict is Verdict.VACUOUS]
    lines = [
        f"- `{id}` is vacuous: nothing in the whole run gave it anything to look at" for id in vacuous[:SHOWN_ROWS]
    ]
    lines += [f"- baseline: {_inline(entry)} answers to nothing" for entry in report.unmatched_baseline[:SHOWN_ROWS]]
    return "\n".join(lines)


def _details(group: Group, cases: Mapping[str, Case]) -> str:
    """One shape of violation, folded: statement, place, expected and found, the sample, the command."""
    hit = group.telling(cases)
    finding, case = hit.finding, cases.get(hit.result.scenario)
    lines = [f"{hit.result.scenario}, {finding.where}"]
    if finding.expected or finding.found:
        lines += [f"expected  {cut(finding.expected, 400)}", f"found     {cut(finding.found, 400)}"]
    if case is not None:
        lines += ["", *marked_sample(case, finding)]
    summary = f"<code>{group.contract.id}</code> {_inline(cut(finding.message, 200))}"
    parts = [f"<details><summary>{summary}</summary>", _inline(group.contract.statement), _fenced("text", lines)]
    parts += [_fenced("console", [f"$ {hit.result.repro}"])] if hit.result.repro else []
    return "\n\n".join([*parts, "</details>"])


def _fenced(language: str, lines: Sequence[str]) -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    text = "\n".join(lines)
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def _inline(text: str) -> str:
    """`text` as plain words of one line, whatever a message holds."""
    for character in "\\`*_[]<>|#@":
        text = text.replace(character, {"<": "&lt;", ">": "&gt;", "@": "&#64;"}.get(character, f"\\{character}"))
    return " ".join(text.split())
