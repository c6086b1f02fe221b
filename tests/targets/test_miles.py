"""The adapter against a real miles: the release that MILES_SIM_MILES_PYTHON has, or MILES_SIM_MILES_CHECKOUT holds."""

import asyncio
import os

import httpx
import pytest

from miles_sim.document import read
from miles_sim.scenarios import library
from miles_sim.targets.catalog import open_target
from miles_sim.targets.observation import Observation
from miles_sim.transport import serve
from miles_sim.verify.play import play

pytestmark = pytest.mark.miles


@pytest.fixture(scope="session")
def target():
    """One worker for all: importing miles takes ten seconds."""
    target = open_target(
        "miles", python=os.environ["MILES_SIM_MILES_PYTHON"], checkout=os.environ.get("MILES_SIM_MILES_CHECKOUT")
    )
    yield target
    asyncio.run(target.close())


@pytest.fixture
async def info(target):
    return await target.describe()


@pytest.fixture
def played(target, scripted_engine, job_for, agent_of):
    async def play(turns=("hello", "go on"), agent=None, **fields):
        engine = scripted_engine(fields.get("family", "chatml"))
        async with serve(engine.app) as url, httpx.AsyncClient() as client:
            document = await target.play(job_for(url, **fields), agent or agent_of(client, turns))
        return read(Observation, document, name="miles")

    return play


def versions(info):
    """Those with a session server: the scripted engine has no `/generate`."""
    return [version for version in ("v1", "v2") if f"session.{version}" in info["capabilities"]]


async def test_it_says_what_it_is_and_what_it_lacks(info):
    assert info["name"] == "miles"
    assert info["version"]
    assert "session.v1" in info["capabilities"]
    assert "v2" in versions(info) or info["absent"]["session.v2"] == "there is no miles.rollout.session.v2"
    assert {"batch.train_data", "batch.metrics", "leaks"} <= set(info["capabilities"])
    assert all(info["absent"].values())


@pytest.mark.parametrize("family", ["chatml", "delimiter"])
async def test_tokens_masks_and_logprobs_come_from_the_engine(played, info, family):
    for session in versions(info):
        found = await played(session=session, family=family)
        (rollout,) = found.rollouts
        (sample,) = rollout.samples
        assert rollout.error is None
        assert rollout.agent_ran
        assert (sample.status, sample.index) == ("completed", 7)
        assert sum(sample.loss_mask) == 10
        assert len(sample.rollout_log_probs) == sample.response_length
        assert rollout.input == rollout.input_after
        assert rollout.shared_objects == ()


async def test_nothing_is_left_open_and_the_batch_is_converted(played, info):
    found = await played(inputs=[{"index": 7}, {"index": 8}])
    assert found.sessions_open == 0
    assert found.batch.error is None
    assert found.batch.train_data["sample_indices"] == [7, 8]
    assert found.batch.train_data["raw_reward"] == [0.0, 1.0]
    assert found.batch.metrics["rollout/response_len/mean"] == 10


async def test_rollouts_at_the_same_time_have_their_own_agents(played):
    found = await played(inputs=[{"index": n} for n in range(4)])
    assert [rollout.samples[0].metadata["reward"] for rollout in found.rollouts] == [0, 1, 2, 3]


async def test_an_agent_that_fails_costs_its_own_rollout_only(played):
    async def agent(rollout, base_url, request_kwargs, metadata):
        raise RuntimeError("the sandbox went away")

    found = await played(agent=agent)
    (rollout,) = found.rollouts
    assert rollout.agent_ran
    assert [sample.status for sample in rollout.samples] == ["aborted"]


async def test_sampling_parameters_reach_the_agent_under_their_chat_names(played):
    seen = []

    async def agent(rollout, base_url, request_kwargs, metadata):
        seen.append(dict(request_kwargs))

    await played(agent=agent, inputs=[{"index": 7}, {"index": 8}])
    assert sorted(kwargs["seed"] for kwargs in seen) == [0, 1]
    assert seen[0]["max_tokens"] == 16


async def test_each_play_starts_from_nothing(played):
    assert await played() == await played()


@pytest.mark.parametrize("scenario", ["direct-one", "direct-tools", "batch-single-leaves", "batch-dynamic"])
async def test_a_scenario_is_played_to_its_end(target, info, scenario):
    found = library.load(scenario)
    for session in found.sessions:
        if f"session.{session}" in info["capabilities"]:
            case = await play(found, target, session=session)
            assert [rollout.error for rollout in case.observation.rollouts] == [None] * len(found.rollouts)
            assert case.observation.batch.error is None
            assert len(case.observation.batch.shards) == found.batch.dp_size
            assert case.observation.batch.train_data is not None
