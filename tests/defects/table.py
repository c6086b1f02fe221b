"""The defect table: each planted defect, where it shows, and which rules caught it.

Written by `python -m tests.defects.table > tests/defects/table.md`, from the root of the checkout.
"""

import asyncio
import sys

import pytest

from .catalog import DEFECTS, Defect
from .test_defects import RULES, judged

OF_FAILING = frozenset(
    {
        "counters/absent-setting-tolerated",
        "identity/accepted-downstream",
        "identity/missing-rejected",
        "session/collect-survived",
        "session/ends-in-samples",
        "session/play-ends",
    }
)
"""Rules that look at how a rollout fails, not at its data: a defect that they alone catch only crashes."""


async def caught() -> dict[str, tuple[str, ...]]:
    """Defect name to the rules that its case violates, all of them, by id."""
    found = {}
    for defect in DEFECTS:
        with pytest.MonkeyPatch.context() as patch:
            defect.patch(patch)
            judgements = await judged(defect.case)
        found[defect.name] = tuple(sorted(id for id, judgement in judgements.items() if judgement.violations))
    return found


def table(found: dict[str, tuple[str, ...]]) -> str:
    """The committed document."""
    by_name = sorted(DEFECTS, key=lambda defect: defect.name)
    lines = [
        f"{len(DEFECTS)} defects planted into our own implementation, one at a time, each judged on one case by all "
        f"{len(RULES)} rules.",
        "",
        "| defect | what went wrong | case | caught by |",
        "|---|---|---|---|",
    ]
    lines += [_row(defect, found[defect.name]) for defect in by_name]
    return "\n".join([*lines, "", *_by_rule(found)]) + "\n"


def only_crashes(rules: tuple[str, ...]) -> bool:
    """Nothing but a failure was seen of it."""
    return set(rules) <= OF_FAILING


def _row(defect: Defect, rules: tuple[str, ...]) -> str:
    what = " ".join((defect.patch.__doc__ or "").split()).replace("|", "\\|")
    what += f" *Only a crash: {defect.crash}*" if defect.crash else ""
    return f"| {defect.name} | {what} | {defect.case} | {', '.join(rules)} |"


def _by_rule(found: dict[str, tuple[str, ...]]) -> list[str]:
    counts = {id: sum(id in rules for rules in found.values()) for id in sorted(RULES)}
    return ["| rule | defects that it caught |", "|---|---|", *(f"| {id} | {count} |" for id, count in counts.items())]


if __name__ == "__main__":
    sys.stdout.write(table(asyncio.run(caught())))
