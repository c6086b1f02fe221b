"""What a session gives to assembly, through the real one."""

import asyncio
import sys
import threading
from types import ModuleType
from typing import Any

import pytest

from miles_sim.rollout.sample import Sample
from miles_sim.rollout.wire import decode_samples


async def collected(sessions: Any, **body: Any) -> Any:
    response = await sessions.client.post(f"{sessions.url}/samples", json=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/octet-stream"
    return decode_samples(response.content, Sample(index=3), session=sessions.server._settings.session)


@pytest.mark.parametrize("session", ["v1", "v2"])
async def test_a_conversation_becomes_one_sample_with_each_reply_trainable(
    opened: Any, user: Any, session: str
) -> None:
    sessions = await opened(session=session)
    first = await sessions.say(user("one"))
    second = await sessions.say(user("one"), first, user("two"))
    third = await sessions.say(user("one"), first, user("two"))
    reply = await collected(sessions, metadata={"reward": 0.5, "note": "x"})
    contents = [first["content"], third["content"]]
    assert second["content"] not in contents
    (sample,) = reply.samples
    assert sum(sample.loss_mask) == sum(len(text) + 1 for text in contents)
    record = (await sessions.show())["records"][-1]
    assert sample.tokens[: len(record["request"]["input_ids"])] == record["request"]["input_ids"]
    assert (sample.reward, sample.metadata["note"]) == (0.5, "x")


async def test_twins_are_kept_and_retries_are_not(opened: Any, user: Any) -> None:
    v2 = await opened(session="v2")
    first = await v2.say(user("one"))
    asked = [user("one"), first, user("go")]
    holds = [v2.engine.hold(), v2.engine.hold()]
    tasks = []
    for hold in holds:
        tasks.append(asyncio.create_task(v2.chat(*asked)))
        await hold.arrival()
    for hold, task in zip(holds, tasks, strict=True):
        hold.released.set()
        assert (await task).status_code == 200
    assert len((await collected(v2)).samples) == 2
    await v2.chat(*asked)
    assert len((await collected(v2)).samples) == 1


async def test_collecting_again_gives_the_same_bytes(opened: Any, user: Any) -> None:
    sessions = await opened()
    await sessions.say(user("one"))
    first, second = [await sessions.client.post(f"{sessions.url}/samples") for _ in range(2)]
    assert first.status_code == 200
    assert first.content == second.content


async def test_a_session_without_generations_says_so(opened: Any) -> None:
    reply = await collected(await opened())
    assert (reply.samples, reply.empty_reason) == ([], "no_records")


async def test_a_limit_asked_for_goes_before_the_one_set(opened: Any, user: Any) -> None:
    sessions = await opened(max_seq_len=5)
    await sessions.say(user("one"))
    assert (await collected(sessions)).empty_reason == "all_truncated"
    assert len((await collected(sessions, max_seq_len=1000)).samples) == 1


async def test_no_limit_asked_for_is_the_one_set_whether_null_or_left_out(opened: Any, user: Any) -> None:
    sessions = await opened(max_seq_len=5)
    await sessions.say(user("one"))
    for body in ({}, {"max_seq_len": None}):
        assert (await collected(sessions, **body)).empty_reason == "all_truncated"


async def test_a_hook_that_fails_is_422_by_name_and_harms_nothing(opened: Any, user: Any) -> None:
    def greedy(samples: Any, metadata: Any) -> Any:
        raise KeyError("leaf")

    sessions = await opened(sample_picker=greedy)
    await sessions.say(user("one"))
    response = await sessions.client.post(f"{sessions.url}/samples", json={})
    assert response.status_code == 422
    assert "greedy" in response.json()["error"]
    assert await sessions.texts() == ["r1"]


@pytest.mark.parametrize("setting", ["sample_picker", "sample_postprocessor"])
@pytest.mark.parametrize("spelt", ["own_hooks:noting", "own_hooks.noting", None])
async def test_an_own_hook_never_runs_on_the_event_loops_thread(
    opened: Any, user: Any, setting: str, spelt: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran_on: list[threading.Thread] = []

    def noting(samples: Any, metadata: Any) -> Any:
        ran_on.append(threading.current_thread())
        return samples

    module = ModuleType("own_hooks")
    monkeypatch.setattr(module, "noting", noting, raising=False)
    monkeypatch.setitem(sys.modules, "own_hooks", module)
    sessions = await opened(**{setting: spelt or noting})
    await sessions.say(user("one"))
    await collected(sessions)
    assert len(ran_on) == 1
    assert ran_on[0] is not threading.current_thread()


async def test_other_requests_are_served_while_samples_are_assembled(opened: Any, user: Any) -> None:
    begun, served = threading.Event(), threading.Event()

    def slow(samples: Any, metadata: Any) -> Any:
        begun.set()
        assert served.wait(timeout=10), "the event loop stood still"
        return samples

    sessions = await opened(sample_picker=slow)
    first = await sessions.say(user("one"))
    collecting = asyncio.create_task(sessions.client.post(sessions.url + "/samples"))
    await asyncio.to_thread(begun.wait, 10)
    await sessions.say(user("one"), first, user("two"))
    served.set()
    (sample,) = decode_samples((await collecting).content, Sample(index=3), session="v2").samples
    assert len(sample.metadata["lifecycle"]) == 1
