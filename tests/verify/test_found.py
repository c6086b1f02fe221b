"""What was found, as files: under its contract's name, never over another's, promoted only where it may be."""

import shlex
from pathlib import Path

import pytest

from miles_sim.document import DocumentError
from miles_sim.scenarios import library
from miles_sim.scenarios.model import Scenario
from miles_sim.verify.found import free, promoted, slug, written
from miles_sim.verify.report import ContractView, Finding, Report, Result, TargetView, Verdict, summarise
from miles_sim.verify.run import Run
from miles_sim.verify.search import Found

CONTRACT = "identity/missing-rejected-under-O"


def _found(seed: int = 0) -> Found:
    finding = Finding(where="rollout 0", message="wrong")
    result = Result(
        scenario="drawn/v2", contract=CONTRACT, verdict=Verdict.VIOLATION, message="wrong", findings=(finding,)
    )
    contract = ContractView(
        id=CONTRACT, statement="s", severity="must", level="meaning", witnesses=1, verdict=Verdict.VIOLATION
    )
    report = Report(
        target=TargetView(name="t", version="1", python="3"),
        seed=0,
        summary=summarise([result], [contract]),
        contracts=(contract,),
        results=(result,),
    )
    plan = {"steps": [{"do": "say"}]}
    scenario = Scenario.model_validate({"name": "drawn", "title": "Drawn", "seed": seed, "plan": plan})
    return Found(CONTRACT, scenario, Run(report, {}))


def test_a_file_is_named_by_its_contract_and_says_how_to_see_the_violation(tmp_path: Path) -> None:
    file = written(_found(), tmp_path / "made", command=("miles-sim", "verify", "--target", "miles"))
    assert file.path == tmp_path / "made" / "identity-missing-rejected-under-o.yaml"
    words = shlex.split(file.repro)
    assert words == [
        *("miles-sim", "verify", "--target", "miles"),
        *("--scenario", str(file.path), "--contract", CONTRACT),
    ]
    assert f"# {file.repro}\n" in file.path.read_text(encoding="utf-8")
    assert library.load_file(file.path).title == "Found by search: wrong"


def test_another_scenario_never_takes_the_place_of_the_first(tmp_path: Path) -> None:
    paths = [written(_found(seed), tmp_path).path for seed in (0, 1, 0)]
    assert [path.stem.removeprefix(slug(CONTRACT)) for path in paths] == ["", "-2", ""]
    assert [library.load_file(path).seed for path in paths] == [0, 1, 0]


def test_a_promoted_scenario_has_the_librarys_name(tmp_path: Path) -> None:
    path = promoted(_found(), free("odd-one", tmp_path))
    assert library.load_file(path).name == "odd-one"


@pytest.mark.parametrize("name", ["linear", "Odd One", "", "a/b", "../x"])
def test_a_name_that_is_taken_or_none_is_refused_before_a_search(name: str) -> None:
    with pytest.raises(DocumentError, match="promote"):
        free(name)


def test_a_library_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="library"):
        free("odd-one", tmp_path / "none")
