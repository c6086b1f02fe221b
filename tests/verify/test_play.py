"""A play: direct ones, ones that are played twice, and requests that are left under way."""

from typing import Any

import pytest

from miles_sim.scenarios import library
from miles_sim.scenarios.model import Scenario
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.transport import LocalNetwork
from miles_sim.verify.play import play
from miles_sim.verify.rule import Case


async def played(name: str, session: Any, **changes: Any) -> Case:
    network = LocalNetwork()
    try:
        scenario = library.load(name)
        changed = Scenario.model_validate({**scenario.model_dump(), **changes}) if changes else scenario
        return await play(changed, ReferenceTarget(network), session=session, network=network)
    finally:
        await network.aclose()


async def test_turns_of_a_direct_play_are_those_of_the_plan() -> None:
    case = await played("direct-tools", "direct")
    assert [(t.step, t.kind, t.parent) for t in case.ledger.turns] == [
        ("1", "say", None),
        ("2", "tool", "1"),
        ("3", "tool", "2"),
    ]
    assert [g.endpoint for g in case.ledger.generations] == ["generate"] * 3
    assert case.observation.session == "direct"


async def test_rollouts_of_a_direct_play_are_told_apart_by_their_seed() -> None:
    case = await played("direct-group", "direct")
    told = [[turn.response_id for turn in rollout.turns] for rollout in case.rollouts]
    assert [len(ids) for ids in told] == [2, 2, 2, 2]
    assert len({id for ids in told for id in ids}) == 8


async def test_tool_results_are_those_of_the_session_path() -> None:
    direct, tree = await played("direct-tools", "direct"), await played("direct-tools", "v2")
    openings = [case.ledger.generations[0].prompt_ids for case in (direct, tree)]
    assert openings[0] == openings[1]


@pytest.mark.parametrize("name", ["played-again", "one-by-one"])
async def test_a_scenario_that_is_replayed_has_two_plays(name: str) -> None:
    case = await played(name, "v2")
    assert case.second is not None
    assert case.second.second is None
    assert {g.id for g in case.second.ledger.generations} == {g.id for g in case.ledger.generations}


@pytest.mark.parametrize("session", ["v1", "v2"])
async def test_an_abandoned_request_is_the_last_turn_of_its_rollout(session: str) -> None:
    case = await played("closing-race", session)
    for rollout in case.rollouts:
        assert [(turn.kind, turn.status) for turn in rollout.turns] == [("say", 200), ("abandoned", 404)]
    assert case.observation.requests_open == 0


async def test_exchanges_stand_under_the_ids_of_the_ledger() -> None:
    case = await played("linear", "v2")
    assert set(case.exchanges) == {g.id for g in case.ledger.generations}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sessions": ["direct"], "plan": {"steps": [{"do": "say"}, {"do": "say"}]}}, "direct serves one say"),
        ({"sessions": ["direct"], "plan": {"steps": [{"do": "say", "max_tokens": 4}]}}, "direct serves one say"),
        ({"sessions": ["v1", "v2"], "hooks": {"picker": "all"}}, "only tree sessions have hooks"),
    ],
)
def test_a_scenario_that_its_sessions_cannot_serve_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Scenario.model_validate({**library.load("linear").model_dump(), **changes})
