"""The reference target against an engine whose answers and counters are known in advance."""

import httpx
import pytest

from miles_sim.document import read
from miles_sim.targets.catalog import open_target
from miles_sim.targets.observation import Observation
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.transport import LocalNetwork, serve


async def over_network(engine, job, agent_of, turns=("hello", "go on"), **settings):
    network = LocalNetwork()
    network.mount("engine", engine.app)
    async with httpx.AsyncClient(transport=network) as client:
        return await ReferenceTarget(network, **settings).play(job, agent_of(client, turns))


async def over_sockets(target, engine, make_job, agent_of, turns=("hello", "go on")):
    try:
        async with serve(engine.app) as url, httpx.AsyncClient() as client:
            return await target.play(make_job(url), agent_of(client, turns))
    finally:
        await target.close()


@pytest.mark.parametrize("session", ["v1", "v2"])
async def test_a_rollout_is_observed_whole(session, scripted_engine, job_for, agent_of):
    job = job_for("http://engine", session=session, inputs=[{"index": 7, "label": "x"}])
    found = read(Observation, await over_network(scripted_engine(), job, agent_of), name="reference")
    (rollout,) = found.rollouts
    (sample,) = rollout.samples
    assert rollout.agent_ran
    assert rollout.input == rollout.input_after
    assert rollout.returned == {"v1": "single", "v2": "list"}[session]
    assert (sample.label, sample.status, sum(sample.loss_mask)) == ("x", "completed", 10)
    assert sample.spec_info.model_dump() == {
        "spec_accept_token_num": 6,
        "spec_draft_token_num": 12,
        "spec_verify_ct": 4,
        "completion_token_num": 10,
        "accept_rate": 0.5,
        "accept_length": 2.5,
    }
    assert (found.sessions_open, found.requests_open) == (0, 0)
    assert found.batch.error is None
    assert found.batch.train_data["loss_masks"] == [list(sample.loss_mask)]
    assert found.batch.metrics["rollout/spec_accept_length"] == 2.5


async def test_rollouts_run_at_the_same_time_and_each_has_its_own_agent(scripted_engine, job_for, agent_of):
    job = job_for("http://engine", session="v2", inputs=[{"index": n} for n in range(3)])
    found = await over_network(scripted_engine(), job, agent_of)
    assert [rollout["samples"][0]["metadata"]["reward"] for rollout in found["rollouts"]] == [0.0, 1.0, 2.0]
    assert [rollout["samples"][0]["rollout_id"] for rollout in found["rollouts"]] == [0, 1, 2]


async def test_what_generate_raises_is_that_rollouts_own(scripted_engine, job_for, agent_of):
    job = job_for("http://engine", session="v2", inputs=[{"index": None}, {"index": 8}])
    found = read(Observation, await over_network(scripted_engine(), job, agent_of), name="reference")
    nameless, named = found.rollouts
    assert nameless.error.type == "RolloutIdentityError"
    assert not nameless.agent_ran
    assert len(named.samples) == 1


async def test_a_batch_that_is_refused_says_why(scripted_engine, job_for, agent_of):
    job = job_for("http://engine", session="v2", inputs=[{"index": 1, "rollout_id": 7}, {"index": 7}])
    found = read(Observation, await over_network(scripted_engine(), job, agent_of), name="reference")
    assert found.batch.error.type == "RolloutIdentityError"
    assert found.batch.train_data is None


async def test_in_process_and_over_sockets_give_the_same_document(scripted_engine, job_for, agent_of):
    inputs = [{"index": 7}, {"index": 8}]
    # one rollout after the other would number the scripted replies alike, so each has an engine of its own
    inside = await over_network(scripted_engine(), job_for("http://engine", inputs=inputs[:1]), agent_of)
    outside = await over_sockets(
        ReferenceTarget(), scripted_engine(), lambda url: job_for(url, inputs=inputs[:1]), agent_of
    )
    assert inside == outside


async def test_under_optimize_the_document_is_the_same(scripted_engine, job_for, agent_of):
    plays = [
        await over_sockets(open_target("reference", optimize=optimize), scripted_engine(), job_for, agent_of)
        for optimize in (False, True)
    ]
    assert plays[0] == plays[1]


async def test_settings_of_the_user_reach_generate(scripted_engine, job_for, agent_of):
    def nothing(samples, session_metadata):
        return samples[:0]

    job = job_for("http://engine", session="v2")
    found = await over_network(scripted_engine(), job, agent_of, sample_picker=nothing)
    assert found["rollouts"][0]["samples"][0]["status"] == "aborted"


def test_settings_that_the_scenario_decides_are_refused():
    with pytest.raises(ValueError, match="settings: 'session' is decided by the scenario"):
        ReferenceTarget(session="v1")
