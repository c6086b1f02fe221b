"""Known bugs are filled in from a report, case by case."""

import json
from pathlib import Path

import jsonschema
import pytest

from miles_sim.document import DocumentError
from miles_sim.report.open_rows import open_rows_page
from miles_sim.verify.open_rows import OpenRow, OpenRows, Sign, filled, load_open_rows
from miles_sim.verify.report import ContractView, Finding, Report, Result, Summary, TargetView, Verdict
from miles_sim.verify.schemas import schema


def result(scenario: str, verdict: Verdict, message: str = "", where: str = "") -> Result:
    findings = (Finding(where=where, message=message),) if message else ()
    return Result(scenario=scenario, contract="a/x", verdict=verdict, message=message, findings=findings)


@pytest.fixture
def report() -> Report:
    contract = ContractView(id="a/x", statement="", severity="must", level="meaning", witnesses=4, verdict=Verdict.PASS)
    return Report(
        target=TargetView(name="miles", version="0", python="3.11"),
        seed=0,
        summary=Summary(),
        contracts=(contract,),
        results=(
            result("one/v1", Verdict.VIOLATION, "tokens differ", "row 0"),
            result("one/v2", Verdict.KNOWN, "a field is lost", "spec_info"),
            result("two/v1", Verdict.PASS),
            result("three/v1", Verdict.BLOCKED, "blocked by"),
        ),
    )


def rows(*signs: Sign) -> OpenRows:
    return OpenRows(label="miles", date="2026-01-01", rows=(OpenRow(row="H01", what="it | breaks", signs=signs),))


def only(found: OpenRows) -> Sign:
    ((sign,),) = (row.signs for row in found.rows)
    return sign


@pytest.mark.parametrize(
    ("scenario", "says", "violated", "held"),
    [
        ("*", "", ("one/v1", "one/v2"), 1),
        ("one/*", "", ("one/v1", "one/v2"), 0),
        ("*", "differ", ("one/v1",), 1),
        ("*", "spec_info", ("one/v2",), 1),
        ("three/*", "", (), 0),
    ],
)
def test_a_sign_is_seen_where_a_finding_says_so(
    report: Report, scenario: str, says: str, violated: tuple[str, ...], held: int
) -> None:
    sign = only(filled(rows(Sign(contract="a/x", scenario=scenario, says=says)), report, date="2026-02-02"))
    assert (sign.violated, sign.held) == (violated, held)


def test_what_was_there_before_gives_way_to_the_run(report: Report) -> None:
    found = filled(rows(Sign(contract="a/x", scenario="two/*", violated=("old/v1",))), report, date="2026-02-02")
    assert (found.date, only(found).violated, found.rows[0].flagged) == ("2026-02-02", (), False)


def test_a_contract_that_the_report_does_not_have_is_refused(report: Report) -> None:
    with pytest.raises(DocumentError, match="row H01: the report has no contract 'a/y'"):
        filled(rows(Sign(contract="a/y")), report, date="2026-02-02")


def test_the_page_says_where_each_is_reported(report: Report) -> None:
    found = filled(rows(Sign(contract="a/x"), Sign(contract="a/x", scenario="two/*")), report, date="2026-02-02")
    page = open_rows_page(found)
    assert "| H01 | it \\| breaks | `a/x` | `one/v1`, `one/v2` | **violated** in 2 |" in page
    assert "|  |  | `a/x` | `two/*` | holds in 1 |" in page
    assert "1 of\n1." in page


def test_a_file_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    with pytest.raises(DocumentError, match="No such file"):
        load_open_rows(file)
    file.write_text("{", encoding="utf-8")
    with pytest.raises(DocumentError, match="is no JSON"):
        load_open_rows(file)


def test_the_committed_page_is_what_the_committed_rows_say() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = open_rows_page(load_open_rows(docs / "open-rows.json"))
    assert page == (docs / "open-rows.md").read_text(encoding="utf-8")


def test_the_committed_table_fits_its_schema() -> None:
    table = Path(__file__).parents[2] / "docs" / "open-rows.json"
    jsonschema.Draft202012Validator(schema("open-rows")).validate(json.loads(table.read_bytes()))
