import io

import pytest

from miles_sim.report.console import closing_line, console, print_report
from miles_sim.verify.report import (
    SCOPE,
    ContractView,
    Finding,
    Report,
    Result,
    TargetView,
    Verdict,
    summarise,
)
from miles_sim.verify.rule import Case

REPRO = "miles-sim verify --scenario handmade/v2 --contract counters/reaches-driver"


def _result(verdict: Verdict, contract: str = "counters/reaches-driver", findings: int = 0) -> Result:
    found = tuple(
        Finding(where=f"rollout 0, sample {n}", message="drafted ids are lost", expected="18", found="0")
        for n in range(findings)
    )
    repro = REPRO if findings else ""
    return Result(scenario="handmade/v2", contract=contract, verdict=verdict, witnesses=3, repro=repro, findings=found)


def _report(*results: Result, unmatched: tuple[str, ...] = ()) -> Report:
    contracts = tuple(
        ContractView(
            id=result.contract,
            statement="Counters reach the driver.",
            severity="must",
            level="meaning",
            witnesses=result.witnesses,
            verdict=result.verdict,
            reason="nothing seen" if result.verdict is Verdict.VACUOUS else "",
        )
        for result in results
    )
    return Report(
        target=TargetView(name="reference", version="1", python="3.10", absent={"leaks": "no registry"}),
        seed=0,
        summary=summarise(results, contracts),
        contracts=contracts,
        results=results,
        unmatched_baseline=unmatched,
    )


def _printed(report: Report, cases: dict[str, Case] | None = None, *, quiet: bool = False) -> str:
    file = io.StringIO()
    print_report(report, cases or {}, console(file), quiet=quiet)
    return file.getvalue()


def test_a_report_opens_with_its_scope_and_ends_with_one_summing_line(case: Case) -> None:
    report = _report(_result(Verdict.PASS))
    lines = _printed(report, {"handmade/v2": case}).splitlines()
    assert " ".join(lines[1:4]).startswith(SCOPE[:80])
    assert lines[-1] == "reference holds: 1 contract, 1 case: 1 passed, 0 violated" == closing_line(report)


def test_a_branching_scenario_shows_its_tree(case: Case) -> None:
    text = _printed(_report(_result(Verdict.PASS)), {"handmade/v2": case})
    assert "handmade: One of each" in text
    assert "├─ 2r retry" in text


def test_a_violation_prints_rule_place_expected_found_and_how_to_see_it_again() -> None:
    text = _printed(_report(_result(Verdict.VIOLATION, findings=1)))
    for part in ("counters/reaches-driver (must): Counters", "handmade/v2, rollout 0, sample 0", REPRO):
        assert part in text
    assert "expected  18" in text
    assert "found     0" in text
    assert text.splitlines()[-1].startswith("reference does not hold")


def test_findings_that_say_the_same_are_told_once_and_counted() -> None:
    text = _printed(_report(_result(Verdict.VIOLATION, findings=40)))
    assert text.count("drafted ids are lost") == 1
    assert "40 findings in 1 case: handmade/v2" in text


def test_the_offending_tokens_are_marked_in_the_sample(case: Case) -> None:
    result = _result(Verdict.VIOLATION, findings=1)
    meant = result.findings[0].model_copy(update={"rollout": 0, "sample": 0, "tokens": ((27, 29),)})
    text = _printed(_report(result.model_copy(update={"findings": (meant,)})), {"handmade/v2": case})
    lines = text.splitlines()
    (at,) = (number for number, line in enumerate(lines) if "at 27  " in line)
    carets = lines[at + 1]
    assert lines[at][carets.index("^") : carets.rindex("^") + 1] == "do"
    assert carets.endswith("2 ids")


def test_a_run_in_which_all_is_broken_stays_short(case: Case) -> None:
    """Two thousand findings of forty contracts."""
    results = [
        _result(Verdict.VIOLATION, f"area/rule-{rule}", 1).model_copy(update={"scenario": f"case-{number}/v2"})
        for rule in range(40)
        for number in range(50)
    ]
    text = _printed(_report(*results), {"case-0/v2": case}, quiet=True)
    assert len(text.splitlines()) < 250
    assert "area/rule-39" in text
    assert "50 findings in 50 cases: case-0/v2" in text


def test_quiet_leaves_what_is_wrong_and_the_closing_line(case: Case) -> None:
    cases = {"handmade/v2": case}
    assert _printed(_report(_result(Verdict.PASS)), cases, quiet=True).splitlines() == [
        "reference holds: 1 contract, 1 case: 1 passed, 0 violated"
    ]
    assert REPRO in _printed(_report(_result(Verdict.VIOLATION, findings=1)), cases, quiet=True)


@pytest.mark.parametrize("verdict", [Verdict.VACUOUS, Verdict.UNEXPECTED_PASS])
def test_whatever_fails_a_run_is_named(verdict: Verdict) -> None:
    report = _report(_result(verdict))
    assert not report.holds
    assert "counters/reaches-driver" in _printed(report, quiet=True)


def test_a_baseline_entry_without_an_answer_is_named() -> None:
    text = _printed(_report(_result(Verdict.PASS), unmatched=("identity/x on linear/v1",)), quiet=True)
    assert "identity/x on linear/v1" in text
    assert "1 baseline entries unanswered" in text


def test_what_the_target_cannot_do_is_told_with_the_reason() -> None:
    assert "not there: leaks: no registry" in _printed(_report(_result(Verdict.PASS)))


def test_output_that_is_no_terminal_is_plain_text_and_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    name, reason = "counters/" + "long-name-" * 7, "nothing " * 30
    report = _report(_result(Verdict.VACUOUS, contract=name))
    (contract,) = report.contracts
    report = report.model_copy(update={"contracts": (contract.model_copy(update={"reason": reason}),)})
    text = _printed(report)
    assert "\x1b" not in text
    assert "…" not in text
    assert text.count(name) == 2
    assert text.count("nothing") == 60


def test_a_terminal_gets_colour_unless_it_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    coloured, plain = Terminal(), Terminal()
    print_report(_report(_result(Verdict.PASS)), {}, console(coloured))
    monkeypatch.setenv("NO_COLOR", "1")
    print_report(_report(_result(Verdict.PASS)), {}, console(plain))
    assert "\x1b[1;32m" in coloured.getvalue()
    assert "\x1b[1;32m" not in plain.getvalue()
