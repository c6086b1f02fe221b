"""Two reports: what got worse, what got better, what went out of sight."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from miles_sim.cli import app
from miles_sim.document import DocumentError
from miles_sim.verify.compare import compare, load_report
from miles_sim.verify.report import Report, Result, Summary, TargetView, Verdict

V = Verdict


def report(**verdicts: Verdict) -> Report:
    """Case name to the verdict of one contract on it."""
    results = tuple(
        Result(scenario=case, contract="own/rule", verdict=verdict, message=verdict.value)
        for case, verdict in verdicts.items()
    )
    target = TargetView(name="t", version="1", python="3.11")
    return Report(target=target, seed=0, summary=Summary(), contracts=(), results=results)


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (V.PASS, V.VIOLATION, "worse"),
        (V.NOT_APPLICABLE, V.VIOLATION, "worse"),
        (V.BLOCKED, V.KNOWN, "worse"),
        (V.UNEXPECTED_PASS, V.KNOWN, "worse"),
        (V.VIOLATION, V.PASS, "better"),
        (V.KNOWN, V.UNEXPECTED_PASS, "better"),
        (V.PASS, V.BLOCKED, "lost"),
        (V.PASS, V.NOT_APPLICABLE, "lost"),
        (V.VIOLATION, V.BLOCKED, "hidden"),
        (V.VIOLATION, V.KNOWN, None),
        (V.PASS, V.UNEXPECTED_PASS, None),
        (V.BLOCKED, V.PASS, None),
        (V.BLOCKED, V.NOT_APPLICABLE, None),
    ],
)
def test_each_change_is_of_one_kind(before: Verdict, after: Verdict, kind: str | None) -> None:
    found = compare(report(case=before), report(case=after))
    kinds = {name: len(getattr(found, name)) for name in ("worse", "better", "lost", "hidden")}
    assert kinds == {name: int(name == kind) for name in kinds}
    assert found.holds is (kind not in ("worse", "lost"))


def test_a_violation_of_a_case_that_was_not_played_before_is_worse_and_what_is_gone_is_named() -> None:
    found = compare(report(old=V.PASS), report(fresh=V.VIOLATION, other=V.PASS))
    assert [change.scenario for change in found.worse] == ["fresh"]
    assert found.only_before == ("own/rule on old",)
    assert found.only_after == ("own/rule on fresh", "own/rule on other")


def write(path: Path, made: Report) -> str:
    path.write_bytes(made.to_json())
    return str(path)


def test_the_command_prints_both_directions_and_fails_where_something_got_worse(tmp_path: Path) -> None:
    first = write(tmp_path / "a.json", report(one=V.PASS, two=V.VIOLATION))
    second = write(tmp_path / "b.json", report(one=V.VIOLATION, two=V.PASS))
    result = CliRunner().invoke(app, ["compare", first, second])
    assert result.exit_code == 1
    assert "own/rule on one: pass -> violation" in result.output
    assert "own/rule on two: violation -> pass" in result.output
    assert result.output.splitlines()[-1].startswith("1 worse, 0 lost from sight, 1 better")
    document = json.loads(CliRunner().invoke(app, ["compare", first, second, "--json"]).output)
    assert (document["schema"], len(document["worse"]), len(document["better"])) == ("miles-sim/comparison/1", 1, 1)
    assert CliRunner().invoke(app, ["compare", first, first]).exit_code == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("{", "is no JSON"),
        ("[]", "expected a mapping, found list"),
        ('{"schema": "miles-sim/ledger/1"}', "schema"),
    ],
)
def test_what_is_no_report_is_told(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DocumentError, match=message):
        load_report(path)
    assert CliRunner().invoke(app, ["compare", str(path), str(path)]).exit_code == 2
