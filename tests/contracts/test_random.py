"""Random plans under random limits keep every contract on our own implementation."""

import asyncio

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from miles_sim.engine.settings import Speculative
from miles_sim.scenarios.model import Sampling, Scenario
from miles_sim.scenarios.strategies import scenarios
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.transport import LocalNetwork
from miles_sim.verify import Case
from miles_sim.verify.judge import judge
from miles_sim.verify.pack import load_pack
from miles_sim.verify.play import play

RULES = [rule for rule in load_pack() if rule.scope != "scenario"]


@st.composite
def limited(draw: st.DrawFn) -> Scenario:
    """Any plan, with replies cut by `max_tokens` and samples cut by `max_seq_len` among what may happen."""
    scenario = draw(scenarios())
    speculative = draw(st.none() | st.just(Speculative()))
    family = draw(st.sampled_from(("chatml", "delimiter")))
    return scenario.model_copy(
        update={
            "engine": scenario.engine.model_copy(update={"tokenizer": family, "speculative": speculative}),
            "sampling": Sampling(max_new_tokens=draw(st.sampled_from((6, 64)))),
            "max_seq_len": draw(st.none() | st.integers(30, 600)),
        }
    )


async def played(scenario: Scenario) -> list[Case]:
    network = LocalNetwork()
    try:
        return [
            await play(scenario, ReferenceTarget(network), session=session, network=network)
            for session in scenario.sessions
        ]
    finally:
        await network.aclose()


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(limited())
def test_random_plans_keep_every_contract(scenario: Scenario) -> None:
    for case in asyncio.run(played(scenario)):
        broken = [violation for judgement in judge(case, RULES) for violation in judgement.violations]
        assert broken == []
