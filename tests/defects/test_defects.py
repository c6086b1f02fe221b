"""Every rule catches at least one bug, and passes where there is none."""

from dataclasses import replace

import pytest

from miles_sim.scenarios import library
from miles_sim.targets.base import PlayError
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.transport import LocalNetwork
from miles_sim.verify.judge import Judgement, judge, judge_scenario
from miles_sim.verify.pack import load_pack
from miles_sim.verify.play import play
from miles_sim.verify.report import Verdict
from miles_sim.verify.rule import Case
from miles_sim.verify.survival import broken_off

from .catalog import DEFECTS, Defect

RULES = {rule.id: rule for rule in load_pack()}


async def judged(name: str) -> dict[str, Judgement]:
    """All rules on one case, `scenario/session` or `scenario/v1+v2`, as if it was played under python -O."""
    scenario, _, sessions = name.partition("/")
    network = LocalNetwork()
    cases: dict[str, Case] = {}
    rules = list(RULES.values())
    try:
        for session in sessions.split("+"):
            case = await play(library.load(scenario), ReferenceTarget(network), session=session, network=network)  # type: ignore[arg-type]
            cases[session] = replace(case, capabilities=case.capabilities | {"python-O"})
    except PlayError as error:
        return {judgement.rule.id: judgement for judgement in broken_off(name, error, rules)}
    finally:
        await network.aclose()
    judgements = judge_scenario(cases, rules, frozenset()) if len(cases) > 1 else judge(cases[sessions], rules)
    return {judgement.rule.id: judgement for judgement in judgements}


@pytest.mark.parametrize("defect", DEFECTS, ids=[defect.name for defect in DEFECTS])
async def test_a_defect_is_reported_by_its_rules(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    defect.patch(monkeypatch)
    judgements = await judged(defect.case)
    for id in defect.rules:
        assert judgements[id].verdict is Verdict.VIOLATION, f"{id}: {judgements[id].verdict}"
        assert not any("could not read" in violation.message for violation in judgements[id].violations)


@pytest.mark.parametrize("name", sorted({defect.case for defect in DEFECTS}))
async def test_without_the_defect_its_rules_pass(name: str) -> None:
    judgements = await judged(name)
    assert [id for id, judgement in judgements.items() if judgement.violations] == []
    for defect in DEFECTS:
        if defect.case == name:
            assert {judgements[id].verdict for id in defect.rules} == {Verdict.PASS}, defect.name


def test_every_rule_has_a_defect_that_it_catches() -> None:
    assert {id for defect in DEFECTS for id in defect.rules} == set(RULES)
