"""Random scenarios in which things go wrong: any may come, and each keeps every contract on our own implementation."""

import asyncio

from hypothesis import HealthCheck, Phase, find, given, settings

from miles_sim.agent.plan import Plan, walk
from miles_sim.agent.steps import Crash
from miles_sim.scenarios import library
from miles_sim.scenarios.eventful import eventful, eventful_plans, session_profiles
from miles_sim.scenarios.model import Scenario
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.transport import LocalNetwork
from miles_sim.verify.pack import load_pack
from miles_sim.verify.run import verify

RULES = load_pack()
QUICK = settings(max_examples=500, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck))


def _kinds(plan: Plan) -> set[str]:
    return {step.do for _, step in walk(plan.steps)}


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(eventful())
def test_whatever_happens_every_contract_is_kept(scenario: Scenario) -> None:
    async def played() -> list[str]:
        network = LocalNetwork()
        target = ReferenceTarget(network)
        try:
            cases = [(scenario, session) for session in scenario.sessions]
            run = await verify(cases, target, RULES, network=network, complete=False)
        finally:
            await network.aclose()
        return [f"{result.contract}: {result.message}" for result in run.report.results if result.findings]

    assert asyncio.run(played()) == []


@given(eventful_plans(linear=True))
def test_a_linear_plan_stays_linear(plan: Plan) -> None:
    assert _kinds(plan) <= {"say", "tool", "retry", "crash"}


def test_the_simplest_is_one_short_turn_on_a_plain_engine() -> None:
    shrinking = settings(QUICK, phases=[Phase.generate, Phase.shrink])
    scenario = find(eventful(), lambda scenario: True, settings=shrinking)
    assert (len(scenario.rollouts), len(scenario.plan.steps), scenario.plan.tools) == (1, 1, ())
    assert scenario.engine == type(scenario.engine)()


def test_each_kind_of_event_may_come() -> None:
    find(eventful_plans(), lambda plan: any(isinstance(step, Crash) for step in plan.steps), settings=QUICK)
    find(eventful(), lambda s: s.max_seq_len is not None and s.engine.speculative is not None, settings=QUICK)
    find(eventful(), lambda s: len({r.group_index for r in s.rollouts}) == 2, settings=QUICK)


def test_profiles_that_pass_over_a_session_servers_ids_are_left_out() -> None:
    assert library.load("linear").engine.profile in session_profiles()
    assert "sglang-0.5.6" not in session_profiles()
