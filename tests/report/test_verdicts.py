"""Verdict pages; and that the committed one is what the committed digests say."""

from pathlib import Path

from typer.testing import CliRunner

from miles_sim.cli import app
from miles_sim.report.verdicts import area_table, verdict_page
from miles_sim.verify.digest import Digest, History, Repair, Tally, load_digests

DOCS = Path(__file__).parents[2] / "docs"


def column(label: str, **tallies: Tally) -> Digest:
    contracts = {name.replace("_", "/"): tally for name, tally in tallies.items()}
    fields = {"date": "2026-08-21", "target": "miles", "version": "0", "python": "3.11", "cases": 4}
    return Digest(label=label, contracts=contracts, **fields)  # type: ignore[arg-type]


ONE = column("one", a_x=Tally(passed=3, violated=1), a_y=Tally(passed=2), b_z=Tally(blocked=2))
OTHER = column("other", a_x=Tally(passed=4), b_z=Tally(reason="needs session.v2"))


def test_a_cell_says_how_many_cases_violate_of_how_many_that_were_judged() -> None:
    page = verdict_page([ONE, OTHER])
    assert "| contract | one | other |" in page
    assert "| `a/x` | **1**/4 | ok |" in page
    assert "| `a/y` | ok | – |" in page
    assert "| `b/z` | blocked | · |" in page
    assert "| one | miles 0 | 3.11 | 2026-08-21 | 4 |" in page


def test_areas_are_counted_by_contract() -> None:
    lines = area_table([ONE, OTHER]).splitlines()
    assert lines[2] == "| a | **1 of 2 violated** | 1 hold |"
    assert lines[3] == "| b | not applicable | not applicable |"


def test_a_bug_is_shown_with_what_its_fix_cures() -> None:
    repairs = (
        Repair(pull=7, parent="aa", fix="bb", symptom="too | few", before={"a/x": 2}, after={}),
        Repair(pull=8, parent="aa", fix="bb", symptom="s", before={"a/x": 2}, after={"a/x": 2}, note="it did not help"),
        Repair(pull=9, parent="aa", fix="bb", symptom="s", note="does not import"),
    )
    page = verdict_page([], History(date="2026-08-21", repairs=repairs))
    assert "| too \\| few | `a/x` 2 → 0 |  |" in page
    assert "| s | no difference | it did not help |" in page
    assert "| s | not played | does not import |" in page


def test_the_committed_page_is_what_the_committed_digests_say() -> None:
    result = CliRunner().invoke(app, ["verdicts", str(DOCS / "verdicts")])
    assert result.output == (DOCS / "verdicts.md").read_text(encoding="utf-8")


def test_the_readme_shows_the_same_by_area() -> None:
    files = sorted(file for file in (DOCS / "verdicts").glob("*.json") if file.name != "history.json")
    shown = [found for found in load_digests(files) if not found.label.startswith("#")]
    assert area_table(shown) in (DOCS.parent / "README.md").read_text(encoding="utf-8")
