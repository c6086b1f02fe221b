"""The defect table is current, and says what it must: nothing uncaught, no idle rule, no crash without a reason."""

import asyncio
from pathlib import Path

import pytest

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
