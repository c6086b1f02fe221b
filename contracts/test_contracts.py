"""Every contract on every scenario, on our own implementation."""

import pytest

from miles_sim.scenarios import library
from miles_sim.verify.pack import load_pack
from miles_sim.verify.report import Verdict
from miles_sim.verify.run import Run

CASES = [f"{name}/{session}" for name in library.names() for session in library.load(name).sessions]
RULES = [rule.id for rule in load_pack() if "python-O" not in rule.needs]


@pytest.mark.parametrize("name", CASES)
def test_a_case_keeps_every_contract(name: str, run: Run) -> None:
    broken = [
        f"{result.contract}: {finding.where}: {finding.message}: expected {finding.expected}, found {finding.found}"
        for result in run.report.results
        if result.scenario == name
        for finding in result.findings
    ]
    assert broken == []


@pytest.mark.parametrize("id", RULES)
def test_a_contract_has_something_to_look_at(id: str, run: Run) -> None:
    (contract,) = [contract for contract in run.report.contracts if contract.id == id]
    assert (contract.verdict, contract.reason) == (Verdict.PASS, "")
    assert contract.witnesses > 0
