"""The defect table is current, and says what it must: nothing uncaught, no idle rule, no crash without a reason."""

import asyncio
from pathlib import Path

import pytest

from .bugs import PARTS, document
from .catalog import DEFECTS
from .table import caught, only_crashes, table
from .test_defects import RULES

TABLE = Path(__file__).parent / "table.md"


@pytest.fixture(scope="module")
def found() -> dict[str, tuple[str, ...]]:
    return asyncio.run(caught())


def test_the_table_is_current(found: dict[str, tuple[str, ...]]) -> None:
    assert TABLE.read_text(encoding="utf-8") == table(found), (
        "run: python -m tests.defects.table > tests/defects/table.md"
    )


def test_no_defect_goes_uncaught_and_each_is_caught_by_what_it_names(found: dict[str, tuple[str, ...]]) -> None:
    assert [name for name, rules in found.items() if not rules] == []
    assert {d.name: set(d.rules) - set(found[d.name]) for d in DEFECTS if set(d.rules) - set(found[d.name])} == {}


def test_no_rule_is_without_a_defect(found: dict[str, tuple[str, ...]]) -> None:
    assert set(RULES) - {id for rules in found.values() for id in rules} == set()


def test_what_only_crashes_says_why(found: dict[str, tuple[str, ...]]) -> None:
    assert {d.name for d in DEFECTS if d.crash} == {d.name for d in DEFECTS if only_crashes(found[d.name])}


def test_the_table_of_bugs_is_current(found: dict[str, tuple[str, ...]]) -> None:
    assert (TABLE.parent / "bugs.md").read_text(encoding="utf-8") == document(found), (
        "run: python -m tests.defects.bugs > tests/defects/bugs.md"
    )


def test_each_bug_has_a_defect_or_says_why_not() -> None:
    every = [bug for part in PARTS.values() for bug in part]
    assert [bug.source for bug in every if not bug.defects and not bug.note] == []
    assert {name for bug in every for name in bug.defects} - {defect.name for defect in DEFECTS} == set()
