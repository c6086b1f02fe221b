"""A baseline written from a report: what is violated, by contract, with the reasons that are known already."""

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from typing import Any

import yaml

from miles_sim.verify.baseline import Baseline, Known
from miles_sim.verify.report import Report, Verdict

OPEN = "TODO"
"""Opens a reason, and stands for a link, that a person has yet to write."""


def draft(report: Report, known: Baseline | None = None) -> Baseline:
    """Every violation of `report`, seen or known. Entries of `known` stay, less the cases that they no longer fit;
    what varies stays whole, and so does what was not looked at.

    A case that no entry lists joins the contract's entry where there is exactly one; else it waits in one of its own.
    """
    violated: dict[str, dict[str, str]] = defaultdict(dict)
    for result in report.results:
        if result.verdict in (Verdict.VIOLATION, Verdict.KNOWN):
            violated[result.contract][result.scenario] = result.message
    looked_at = {f"{result.contract} on {result.scenario}" for result in report.results}
    looked_at |= set(report.unmatched_baseline)
    entries: list[Known] = []
    listed = known.known if known else ()
    for contract in sorted({*violated, *(entry.contract for entry in listed)}):
        mine = [entry for entry in listed if entry.contract == contract]
        stay = {
            case
            for entry in mine
            for case in entry.scenarios
            if entry.varies or case in violated[contract] or f"{contract} on {case}" not in looked_at
        }
        entries += _entries(contract, violated[contract], mine, stay)
    return Baseline(target=report.target.name, version=report.target.version, known=tuple(entries))


def _entries(contract: str, cases: Mapping[str, str], mine: Sequence[Known], stay: Container[str]) -> list[Known]:
    listed = {scenario for entry in mine for scenario in entry.scenarios}
    fresh = [case for case in cases if case not in listed]
    kept = {number: [case for case in entry.scenarios if case in stay] for number, entry in enumerate(mine)}
    if len(mine) == 1 and not mine[0].varies:
        kept[0] += fresh
        fresh = []
    entries = [
        entry.model_copy(update={"scenarios": tuple(sorted(kept[number]))})
        for number, entry in enumerate(mine)
        if kept[number]
    ]
    if fresh:
        reason = f"{OPEN}: {cases[fresh[0]]}"
        entries.append(Known(contract=contract, scenarios=tuple(sorted(fresh)), reason=reason, link=OPEN))
    return entries


def baseline_text(baseline: Baseline) -> str:
    """The YAML file of a baseline."""
    document: dict[str, Any] = baseline.model_dump(mode="json", exclude_defaults=True)
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=118)
    return text
