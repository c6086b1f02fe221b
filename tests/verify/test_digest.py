"""Reports boiled down; repairs that cure."""

from pathlib import Path

import pytest

from miles_sim.document import DocumentError
from miles_sim.verify.digest import Repair, digest, load_digests, violated
from miles_sim.verify.report import ContractView, Report, Result, Summary, TargetView, Verdict

V = Verdict


def report() -> Report:
    verdicts = {
        "a/a": [V.PASS, V.VIOLATION, V.KNOWN, V.UNEXPECTED_PASS],
        "b/b": [V.BLOCKED, V.NOT_APPLICABLE],
    }
    results = tuple(
        Result(scenario=f"s{number}/v1", contract=id, verdict=verdict)
        for id, column in verdicts.items()
        for number, verdict in enumerate(column)
    )
    contracts = tuple(
        ContractView(id=id, statement="", severity="must", level="meaning", witnesses=1, verdict=V.PASS, reason=reason)
        for id, reason in (("a/a", ""), ("b/b", ""), ("c/c", "needs session.v2: it is old"))
    )
    target = TargetView(name="miles", version="1", python="3.11.7")
    return Report(target=target, seed=0, summary=Summary(), contracts=contracts, results=results)


def test_each_contract_has_its_counts_and_a_known_violation_is_one() -> None:
    made = digest(report(), label="old", date="2026-08-21")
    assert {id: (t.passed, t.violated, t.blocked) for id, t in made.contracts.items()} == {
        "a/a": (2, 2, 0),
        "b/b": (0, 0, 1),
        "c/c": (0, 0, 0),
    }
    assert made.contracts["c/c"].reason == "needs session.v2: it is old"
    assert (made.cases, made.target, made.label) == (4, "miles", "old")
    assert violated(report()) == {"a/a": 2}


def test_a_repair_cures_where_fewer_cases_are_violated_after_it() -> None:
    made = Repair(
        pull=1, parent="a", fix="b", symptom="s", before={"x/x": 3, "y/y": 1, "z/z": 2}, after={"x/x": 1, "z/z": 2}
    )
    assert made.cured == {"x/x": (3, 1), "y/y": (1, 0)}
    assert Repair(pull=1, parent="a", fix="b", symptom="s").cured == {}


def test_a_date_is_a_day_and_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="date"):
        digest(report(), label="old", date="yesterday")
    file = tmp_path / "a.json"
    file.write_text("{")
    with pytest.raises(DocumentError, match=r"a\.json: is no JSON"):
        load_digests([file])
