"""Faults in whole plays: the same whatever the order, over sockets as in process, and told in the report."""

from typing import Any

import pytest

from miles_sim.scenarios import library
from miles_sim.scenarios.model import Scenario, SessionVersion
from miles_sim.scenarios.single import tools_scenario
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.transport import LocalNetwork
from miles_sim.verify.judge import judge
from miles_sim.verify.pack import load_pack
from miles_sim.verify.play import play
from miles_sim.verify.report import Verdict
from miles_sim.verify.rule import Case
from miles_sim.verify.run import verify
from miles_sim.verify.struck import needed


def scenario(*faults: dict[str, Any], rollouts: int = 3, **plan: Any) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "struck",
            "title": "struck",
            "sessions": ("v1", "v2"),
            "rollouts": tuple({"index": number} for number in range(rollouts)),
            "plan": {"steps": ({"do": "say"}, {"do": "say"}, {"do": "say"}), **plan},
            "faults": faults,
        }
    )


async def played(chosen: Scenario, session: SessionVersion = "v2") -> Case:
    network = LocalNetwork()
    try:
        return await play(chosen, ReferenceTarget(network), session=session, network=network)
    finally:
        await network.aclose()


async def test_the_same_seed_fires_the_same_and_another_does_not() -> None:
    drawn = scenario({"kind": "http-503", "when": {"probability": 0.4}}, retries=5, rollouts=6)
    one, two = await played(drawn), await played(drawn)
    assert one.ledger == two.ledger
    assert one.observation == two.observation
    other = await played(drawn.model_copy(update={"seed": 1}))
    assert [(f.rollout, f.step) for f in one.ledger.fired] != [(f.rollout, f.step) for f in other.ledger.fired]


async def test_a_place_does_not_depend_on_how_many_others_there_are() -> None:
    fault = {"kind": "http-503", "where": {"step": "2"}, "when": {"probability": 0.5}}
    few, many = await played(scenario(fault, retries=3)), await played(scenario(fault, retries=3, rollouts=9))
    assert [f for f in many.ledger.fired if f.rollout < 3] == list(few.ledger.fired)


async def test_a_reply_of_the_model_is_spoiled_in_the_struck_rollout_alone() -> None:
    case = await played(scenario({"kind": "model-empty", "where": {"rollout": 1, "step": "2"}}))
    assert [(f.kind, f.rollout, f.step) for f in case.ledger.fired] == [("model-empty", 1, "2")]
    lengths = [[len(g.output_ids) for g in rollout.generations] for rollout in case.rollouts]
    assert lengths[1][1] < min(lengths[0][1], lengths[2][1])


async def test_what_was_lost_is_told_and_counts_as_made_for_its_rollout() -> None:
    case = await played(scenario({"kind": "transport-reset-delivered", "where": {"rollout": 0, "step": "2"}}))
    (fired,) = case.ledger.fired
    assert len(fired.lost) == 1
    assert fired.lost[0] in {g.id for g in case.rollouts[0].generations}
    assert fired.lost[0] not in {turn.response_id for turn in case.ledger.turns}


@pytest.mark.parametrize("name", ["http-status", "session-open-404", "session-delete-lost"])
async def test_over_sockets_the_same_fires_as_in_process(name: str) -> None:
    chosen = library.load(f"fault-{name}")
    inside = await played(chosen)
    outside = await play(chosen, ReferenceTarget(), session="v2")
    assert outside.ledger.fired == inside.ledger.fired
    assert [r.samples for r in outside.rollouts] == [r.samples for r in inside.rollouts]
    assert [j.rule.id for j in judge(outside, load_pack()) if j.violations] == []


def test_what_a_target_cannot_be_struck_by_is_needed_by_name() -> None:
    assert needed(scenario(), "v2") == ["session.v2"]
    assert needed(scenario({"kind": "session-open-404"}), "v1") == ["session.v1", "faults.driver"]
    assert needed(scenario({"kind": "consumer-cancels-asking"}), "v1") == ["session.v1", "faults.cancel"]


async def test_a_report_tells_what_fired_and_what_cannot_be_played() -> None:
    cancels = scenario({"kind": "consumer-cancels-asking", "where": {"step": "2"}})
    run = await verify([(cancels, "v2")], ReferenceTarget(), load_pack(), complete=False)
    assert {result.verdict for result in run.report.results} == {Verdict.NOT_APPLICABLE}
    assert run.report.results[0].message == "needs faults.cancel: its rollouts run in another process"
    network = LocalNetwork()
    refused = scenario({"kind": "http-503", "where": {"rollout": 2, "step": "3"}})
    run = await verify([(refused, "v2")], ReferenceTarget(network), load_pack(), network=network, complete=False)
    assert [(f.scenario, f.kind, f.rollout, f.step) for f in run.report.fired] == [("struck/v2", "http-503", 2, "3")]


async def test_rules_on_counters_are_not_asked_of_what_a_fault_may_change() -> None:
    fault = {"kind": "payload-spec-missing", "where": {"rollout": 0}}
    case = await played(tools_scenario(name="one", title="one", rollouts=({"index": 1},), faults=(fault,)))
    told = {j.rule.id: j for j in judge(case, load_pack())}
    assert not any(judgement.violations for judgement in told.values())
    assert told["counters/accept-rate-honest"].reason == "fault payload-spec-missing may change spec_info"
