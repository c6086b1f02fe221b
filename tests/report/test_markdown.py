"""The comment on a pull request: verdict first, short enough to be taken, nothing in it taken for markup."""

from miles_sim.report.markdown import LIMIT, markdown
from miles_sim.verify.report import SCOPE, ContractView, Finding, Report, Result, TargetView, Verdict, summarise
from miles_sim.verify.rule import Case


def _report(*results: Result) -> Report:
    verdicts = {result.contract: result.verdict for result in results}
    contracts = tuple(
        ContractView(id=id, statement="A *statement*.", severity="must", level="meaning", witnesses=1, verdict=verdict)
        for id, verdict in verdicts.items()
    )
    return Report(
        target=TargetView(name="reference", version="1", python="3.10"),
        seed=0,
        summary=summarise(results, contracts),
        contracts=contracts,
        results=results,
    )


def _violated(contract: str = "a/x", case: str = "handmade/v2", message: str = "wrong", size: int = 1) -> Result:
    finding = Finding(
        where="rollout 0, sample 0",
        message=message,
        expected="1" * size,
        found="2",
        rollout=0,
        sample=0,
        tokens=((27, 29),),
    )
    return Result(
        scenario=case,
        contract=contract,
        verdict=Verdict.VIOLATION,
        findings=(finding,),
        repro=f"miles-sim verify --scenario {case} --contract {contract}",
    )


def test_a_run_that_holds_is_told_in_a_few_lines() -> None:
    text = markdown(_report(Result(scenario="a/v2", contract="a/x", verdict=Verdict.PASS)), {})
    assert text.startswith("### ✅ reference holds: 1 contract, 1 case")
    assert SCOPE[:40] in text
    assert len(text.splitlines()) <= 6


def test_a_violation_stands_in_the_table_and_folded_below_with_its_sample_and_command(case: Case) -> None:
    text = markdown(_report(_violated()), {"handmade/v2": case})
    assert text.startswith("### ❌ reference does not hold")
    assert "| `a/x` | must | wrong | `handmade/v2` |" in text
    folded = text[text.index("<details>") : text.index("</details>")]
    assert "$ miles-sim verify --scenario handmade/v2 --contract a/x" in folded
    assert "^^" in folded


def test_a_message_is_never_taken_for_markup(case: Case) -> None:
    text = markdown(_report(_violated(message="a | b </details> `c` @someone #1 *d*")), {"handmade/v2": case})
    (row,) = (line for line in text.splitlines() if line.startswith("| `a/x`"))
    assert row.replace("\\|", "").count("|") == 5
    assert text.count("</details>") == text.count("<details>") == 1
    assert "@someone" not in text


def test_a_sample_full_of_backticks_stays_inside_its_block(case: Case) -> None:
    result = _violated()
    finding = result.findings[0].model_copy(update={"found": "``` and ````"})
    text = markdown(_report(result.model_copy(update={"findings": (finding,)})), {"handmade/v2": case})
    assert "`````text\n" in text


def test_a_run_in_which_all_is_broken_fits_into_one_comment(case: Case) -> None:
    results = [
        _violated(f"area/rule-{rule}", f"case-{number}/v2", f"message {'x' * rule}", size=5_000)
        for rule in range(300)
        for number in range(3)
    ]
    text = markdown(_report(*results), {"case-0/v2": case})
    assert len(text) <= LIMIT
    assert text.count("<details>") == text.count("</details>") > 0
