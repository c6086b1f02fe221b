"""The witness index: every count stands in it, and one change is one line."""

import difflib

from miles_sim.verify.report import ContractView, Report, Result, TargetView, Verdict, summarise
from miles_sim.verify.witnesses import witness_text


def _text(counts: dict[tuple[str, str], int]) -> str:
    """Of (case, contract) to witnesses."""
    results = tuple(
        Result(scenario=case, contract=contract, verdict=Verdict.PASS, witnesses=count)
        for (case, contract), count in counts.items()
    )
    ids = sorted({contract for _, contract in counts})
    contracts = tuple(
        ContractView(
            id=id,
            statement="s",
            severity="must",
            level="meaning",
            witnesses=sum(result.witnesses for result in results if result.contract == id),
            verdict=Verdict.PASS,
        )
        for id in ids
    )
    target = TargetView(name="t", version="1", python="3")
    return witness_text(
        Report(target=target, seed=0, summary=summarise(results, contracts), contracts=contracts, results=results)
    )


COUNTS = {
    ("one/v1", "a/x"): 3,
    ("one/v2", "a/x"): 4,
    ("two/v2", "a/x"): 0,
    ("one/v1", "a/y"): 1,
    ("one/v2", "a/y"): 0,
    ("two/v2", "a/y"): 12,
    ("one/v1+v2", "b/z"): 9,
}


def test_each_count_stands_under_its_contract_and_scenario() -> None:
    lines = [line.split() for line in _text(COUNTS).splitlines()]
    assert ["a", "x", "7"] in lines
    assert ["b", "y", "13"] in lines
    assert ["one", "3+4", "1+0"] in lines
    assert ["two", "·", "12"] in lines
    assert ["one", "9"] in lines


def test_a_scenario_that_an_area_sees_nothing_of_has_no_row_there() -> None:
    b = _text(COUNTS).split("# b\n")[1]
    assert "two" not in b


def test_a_lost_witness_changes_its_row_and_its_total() -> None:
    before, after = (_text(counts).splitlines() for counts in (COUNTS, COUNTS | {("one/v1", "a/x"): 0}))
    gone = [line for line in difflib.ndiff(before, after) if line.startswith("- ")]
    assert [line.split()[1] for line in gone] == ["a", "one"]
