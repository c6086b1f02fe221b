"""Baselines written from reports."""

from pathlib import Path

from typer.testing import CliRunner

from miles_sim.cli import app
from miles_sim.verify.baseline import Baseline, Known, load_baseline
from miles_sim.verify.draft import baseline_text, draft
from miles_sim.verify.report import Report, Result, Summary, TargetView, Verdict


def report(*violated: tuple[str, str], passed: tuple[tuple[str, str], ...] = ()) -> Report:
    results = [
        Result(scenario=case, contract=contract, verdict=Verdict.VIOLATION, message=f"{contract} is broken")
        for contract, case in violated
    ]
    results += [Result(scenario=case, contract=contract, verdict=Verdict.PASS) for contract, case in passed]
    target = TargetView(name="miles", version="1.2", python="3.11")
    return Report(target=target, seed=0, summary=Summary(), contracts=(), results=tuple(results))


def known(*entries: tuple[str, tuple[str, ...], str]) -> Baseline:
    made = [Known(contract=c, scenarios=s, reason=reason, link=f"link of {reason}") for c, s, reason in entries]
    return Baseline(target="miles", version="1.1", known=tuple(made))


def test_each_contract_is_one_entry_that_waits_for_a_reason() -> None:
    made = draft(report(("b/b", "two/v1"), ("a/a", "one/v2"), ("b/b", "one/v1")))
    assert (made.target, made.version) == ("miles", "1.2")
    assert [(e.contract, e.scenarios) for e in made.known] == [("a/a", ("one/v2",)), ("b/b", ("one/v1", "two/v1"))]
    assert {e.link for e in made.known} == {"TODO"}
    assert made.known[0].reason == "TODO: a/a is broken"


def test_reasons_are_kept_and_cases_follow_the_report() -> None:
    old = known(("a/a", ("one/v1", "gone/v1"), "first"), ("c/c", ("gone/v1",), "no more"))
    passed = (("a/a", "gone/v1"), ("c/c", "gone/v1"))
    made = draft(report(("a/a", "one/v1"), ("a/a", "two/v1"), passed=passed), old)
    (entry,) = made.known
    assert (entry.scenarios, entry.reason, entry.link) == (("one/v1", "two/v1"), "first", "link of first")


def test_what_the_report_did_not_look_at_stays() -> None:
    old = known(("a/a", ("one/v1", "two/v1"), "first"), ("b/b", ("two/v1",), "second"))
    assert draft(report(("a/a", "one/v1")), old).known == old.known


def test_what_nothing_in_a_whole_run_answers_to_goes() -> None:
    old = known(("a/a", ("gone/v1", "one/v1"), "first"), ("b/b", ("gone/v1",), "second"))
    whole = report(("a/a", "one/v1")).model_copy(update={"unmatched_baseline": ("a/a on gone/v1", "b/b on gone/v1")})
    assert [(e.contract, e.scenarios) for e in draft(whole, old).known] == [("a/a", ("one/v1",))]


def test_of_two_reasons_none_is_guessed() -> None:
    old = known(("a/a", ("one/v1",), "first"), ("a/a", ("two/v1",), "second"))
    made = draft(report(("a/a", "one/v1"), ("a/a", "two/v1"), ("a/a", "three/v1")), old)
    assert [(e.scenarios, e.link) for e in made.known] == [
        (("one/v1",), "link of first"),
        (("two/v1",), "link of second"),
        (("three/v1",), "TODO"),
    ]


def test_the_text_is_a_baseline_and_the_command_prints_it(tmp_path: Path) -> None:
    made = report(("status/mapped", "linear/v1"))
    file = tmp_path / "report.json"
    file.write_bytes(made.to_json())
    result = CliRunner().invoke(app, ["baseline", str(file)])
    assert result.output == baseline_text(draft(made))
    written = tmp_path / "baseline.yaml"
    written.write_text(result.output)
    assert load_baseline(written, contracts=["status/mapped"]) == draft(made)


def test_what_varies_stays_though_it_held_this_time() -> None:
    (entry,) = known(("a/a", ("one/v1",), "a race")).known
    old = Baseline(target="miles", version="1.1", known=(entry.model_copy(update={"varies": True}),))
    made = draft(report(("a/a", "two/v1"), passed=(("a/a", "one/v1"),)), old)
    assert [(e.scenarios, e.varies) for e in made.known] == [(("one/v1",), True), (("two/v1",), False)]
    assert draft(report(), old).known == old.known
    assert "varies: true" in baseline_text(made)
