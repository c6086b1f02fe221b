"""JUnit XML: every result is one test, what fails the run fails, nothing breaks the document."""

from xml.etree import ElementTree

import pytest

from miles_sim.report.junit import junit
from miles_sim.verify.report import ContractView, Finding, Report, Result, TargetView, Verdict, summarise


def report(*results: Result, vacuous: str | None = None, unmatched: tuple[str, ...] = ()) -> Report:
    verdicts = {result.contract: result.verdict for result in results} | ({vacuous: Verdict.VACUOUS} if vacuous else {})
    contracts = tuple(
        ContractView(id=id, statement="s", severity="must", level="meaning", witnesses=0, verdict=verdict, reason="why")
        for id, verdict in verdicts.items()
    )
    return Report(
        target=TargetView(name="t", version="1", python="3"),
        seed=0,
        summary=summarise(results, contracts),
        contracts=contracts,
        results=results,
        unmatched_baseline=unmatched,
    )


def violated(message: str = "wrong") -> Result:
    finding = Finding(where="rollout 0", message=message, expected="1", found="2")
    repro = "miles-sim verify --scenario b/v2 --contract a/x"
    return Result(
        scenario="b/v2", contract="a/x", verdict=Verdict.VIOLATION, message=message, findings=(finding,), repro=repro
    )


def test_each_result_is_a_test_and_each_suite_counts_its_own() -> None:
    results = [Result(scenario="a/v2", contract="a/x", verdict=verdict, message="why") for verdict in Verdict]
    root = ElementTree.fromstring(junit(report(*results, violated())))
    (suite,) = root
    told = {case.get("name"): [child.tag for child in case] for case in suite}
    assert told["b/v2"] == ["failure"]
    assert suite.attrib == {"name": "a/x", "tests": "8", "failures": "4", "errors": "0", "skipped": "3"}
    assert {name: root.get(name) for name in ("tests", "failures", "skipped")} == {
        "tests": "8",
        "failures": "4",
        "skipped": "3",
    }


def test_a_failure_says_what_was_expected_and_how_to_see_it_again() -> None:
    failure = ElementTree.fromstring(junit(report(violated()))).find(".//failure")
    assert failure is not None
    assert (failure.get("type"), failure.get("message")) == ("violation", "wrong")
    assert (failure.text or "").splitlines() == [
        "rollout 0: wrong",
        "  expected  1",
        "  found     2",
        "miles-sim verify --scenario b/v2 --contract a/x",
    ]


def test_what_fails_a_run_without_being_violated_fails_here_too() -> None:
    root = ElementTree.fromstring(junit(report(vacuous="a/silent", unmatched=("a/x on gone/v1",))))
    told = {
        (case.get("classname"), case.get("name")) for case in root.iter("testcase") if case.find("failure") is not None
    }
    assert told == {("a/silent", "any case"), ("baseline", "a/x on gone/v1")}


@pytest.mark.parametrize("message", ["a\x00b", "]]>", "<b>&\"'", "\ud800", "a\nb", "✓ größe"])
def test_no_message_breaks_the_document(message: str) -> None:
    failure = ElementTree.fromstring(junit(report(violated(message)))).find(".//failure")
    assert failure is not None
    assert "expected  1" in (failure.text or "")


def test_the_same_run_gives_the_same_bytes() -> None:
    assert junit(report(violated())) == junit(report(violated()))
