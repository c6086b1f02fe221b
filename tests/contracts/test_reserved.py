"""Metadata keys that an implementation writes itself: what others put there may be left out or refused."""

from typing import Any

import pytest

from miles_sim.rollout.sample import RESERVED
from miles_sim.scenarios.model import Scenario
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.transport import LocalNetwork
from miles_sim.verify import Case
from miles_sim.verify.judge import judge
from miles_sim.verify.pack import load_pack
from miles_sim.verify.play import play

RULES = [rule for rule in load_pack() if rule.scope != "scenario"]


async def played(session: str, returns: dict[str, Any], metadata: dict[str, Any]) -> Case:
    scenario = Scenario.model_validate(
        {
            "name": "reserved",
            "title": "reserved",
            "sessions": [session],
            "rollouts": [{"index": 7, "metadata": metadata}],
            "plan": {"steps": [{"do": "say"}], "returns": returns},
        }
    )
    network = LocalNetwork()
    try:
        return await play(scenario, ReferenceTarget(network), session=scenario.sessions[0], network=network)
    finally:
        await network.aclose()


def violated(case: Case) -> list[str]:
    return [judgement.rule.id for judgement in judge(case, RULES) if judgement.violations]


@pytest.mark.parametrize("session", ["v1", "v2"])
async def test_what_an_agent_returns_under_a_reserved_key_is_left_out_and_violates_nothing(session: str) -> None:
    case = await played(session, dict.fromkeys(RESERVED, "mine"), {})
    (sample,) = case.observation.rollouts[0].samples
    assert "mine" not in sample.metadata.values()
    assert violated(case) == []


@pytest.mark.parametrize("session", ["v1", "v2", "direct"])
@pytest.mark.parametrize("key", sorted(set(RESERVED) - {"messages"}))
async def test_a_reserved_key_of_the_input_is_refused_and_violates_nothing(session: str, key: str) -> None:
    case = await played(session, {}, {key: 1})
    error = case.observation.rollouts[0].error
    assert error is not None
    assert f"metadata.{key}" in error.message
    assert violated(case) == []
