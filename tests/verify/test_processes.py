"""Several processes: the same cases, the same judgements, own packs too."""

from pathlib import Path

import pytest

from miles_sim.scenarios import library
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.transport import LocalNetwork
from miles_sim.verify.pack import combine, load_pack
from miles_sim.verify.processes import Processes
from miles_sim.verify.rule import Rule
from miles_sim.verify.run import Run, select_cases, verify

OWN = '''
import os
from miles_sim.verify import rule

@rule("own/short", level="meaning", reason="r", source="s")
def short(case, rollout, sample, see):
    """Responses are short."""
    see.that(sample.response_length < 40, "long", found=sample.response_length)

@rule("own/fatal", level="meaning", reason="r", source="s")
def fatal(case, see):
    """One scenario kills who judges it."""
    if case.scenario.name == "aborted":
        os._exit(7)
'''


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


async def run(rules: tuple[Rule, ...], player: Processes | None = None) -> Run:
    cases = select_cases([library.load(name) for name in ("max-seq-len-turn", "retry-first", "id-neither")], ())
    network = LocalNetwork()
    target = ReferenceTarget(network)
    try:
        return await verify(cases, target, rules, network=network, player=player, complete=False)
    finally:
        await target.close()


async def test_the_report_and_the_cases_are_those_of_one_process(pack: Path) -> None:
    rules = tuple(rule for rule in combine([load_pack(), load_pack(pack)]) if rule.id != "own/fatal")
    with Processes(2, rules, [pack]) as player:
        several = await run(rules, player)
    one = await run(rules)
    assert several.report == one.report
    assert not one.report.holds, "the own rule finds long responses"
    assert {name: case.ledger for name, case in several.cases.items()} == {
        name: case.ledger for name, case in one.cases.items()
    }


async def test_a_process_that_dies_is_a_finding(pack: Path) -> None:
    rules = load_pack(pack)
    cases = select_cases([library.load("aborted")], ())
    with Processes(1, rules, [pack]) as player:
        report = (await verify(cases, ReferenceTarget(), rules, player=player, complete=False)).report
    found = {(result.contract, result.verdict.value) for result in report.results if result.findings}
    assert found == {("session/play-ends", "violation")}
