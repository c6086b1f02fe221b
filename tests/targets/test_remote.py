"""A worker process and its parent: real processes, real pipes."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from miles_sim.targets.base import TargetError
from miles_sim.targets.remote import RemoteTarget

FAKE = Path(__file__).with_name("adapters") / "fake.py"


@asynccontextmanager
async def fake(**options):
    target = RemoteTarget(sys.executable, adapter=FAKE, **{"play_timeout": 20, **options})
    try:
        yield target
    finally:
        await target.close()


def job(do, inputs=0):
    return {"session": do, "inputs": [{}] * inputs}


async def no_agent(rollout, base_url, request_kwargs, metadata):
    raise AssertionError("no agent is due")


def workers():
    """Process ids of this process's children that run a worker."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
            if int(parent) == os.getpid() and b"worker.py" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


async def test_describe_and_play_cross_and_nothing_is_left_running():
    async with fake() as target:
        info = await target.describe()
        assert (info["name"], info["optimize"]) == ("fake", 0)
        assert await target.play(job("say"), no_agent) == {"rollouts": []}
        assert len(workers()) == 1
    assert workers() == []


async def test_optimize_runs_the_target_without_assertions():
    async with fake(optimize=True) as target:
        assert (await target.describe())["optimize"] == 1


async def test_agents_run_at_the_same_time_and_their_answers_find_the_caller():
    all_here = asyncio.Event()
    arrived = []

    async def agent(rollout, base_url, request_kwargs, metadata):
        arrived.append(rollout)
        if len(arrived) == 3:
            all_here.set()
        await all_here.wait()
        return {"rollout": rollout, "url": base_url, "seed": request_kwargs["seed"]}

    async with fake() as target:
        document = await target.play(job("say", inputs=3), agent)
    assert document["rollouts"] == [{"rollout": n, "url": f"http://session/{n}", "seed": n} for n in range(3)]


async def test_an_error_of_the_agent_keeps_name_base_and_message():
    class PlanError(ValueError):
        pass

    async def agent(rollout, base_url, request_kwargs, metadata):
        raise PlanError("no way on")

    async with fake() as target:
        document = await target.play(job("say", inputs=1), agent)
    assert document["rollouts"][0] == {
        "type": "PlanError",
        "bases": ["ValueError", "Exception", "BaseException"],
        "message": "no way on",
    }


async def test_an_agent_that_the_target_gives_up_is_cancelled():
    cancelled = asyncio.Event()

    async def agent(rollout, base_url, request_kwargs, metadata):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with fake() as target:
        await target.play(job("give up"), agent)
        await asyncio.wait_for(cancelled.wait(), 5)


async def test_prints_of_the_target_do_not_disturb_the_conversation():
    async with fake() as target:
        assert await target.play(job("print"), no_agent) == {"rollouts": []}


async def test_the_input_of_the_target_is_empty_and_not_the_conversation():
    async with fake() as target:
        assert await target.play(job("read"), no_agent) == {"input": ""}


async def test_the_workers_folder_shadows_no_package_and_given_paths_come_first(tmp_path):
    async with fake(paths=[tmp_path]) as target:
        seen = await target.play(job("path"), no_agent)
    assert seen == {"folder": False, "path": [str(tmp_path), seen["path"][1]]}
    assert not seen["path"][1].endswith("targets")


async def test_what_play_raises_is_a_target_error_with_name_and_message():
    async with fake() as target:
        with pytest.raises(TargetError, match="play: LookupError: nothing to play"):
            await target.play(job("raise"), no_agent)


async def test_a_worker_that_dies_is_named_with_its_last_words_and_the_next_play_has_another():
    async with fake() as target:
        with pytest.raises(TargetError, match=r"play: died\n(.*\n)*.*about to die") as caught:
            await target.play(job("die"), no_agent)
        assert str(caught.value).startswith(sys.executable)
        assert workers() == []
        assert await target.play(job("say"), no_agent) == {"rollouts": []}


@pytest.mark.parametrize("how", ["hang", "wait", "stop"])
async def test_a_worker_that_hangs_is_ended_after_the_time_given(how):
    async with fake(play_timeout=0.3) as target:
        await target.describe()
        with pytest.raises(TargetError, match=r"play: no answer within 0\.3 s"):
            await target.play(job(how), no_agent)
        assert workers() == []


async def test_a_play_that_is_given_up_leaves_nothing_running():
    async with fake() as target:
        await target.describe()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(target.play(job("wait"), no_agent), 0.2)
        assert workers() == []


async def test_an_answer_that_is_no_document_is_a_target_error():
    async with fake() as target:
        with pytest.raises(TargetError, match="play: answered list, a mapping is due"):
            await target.play(job("list"), no_agent)


async def test_an_interpreter_that_talks_nonsense_is_named(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'Welcome to the shell'\ncat >/dev/null\n")
    python.chmod(0o755)
    target = RemoteTarget(str(python), adapter=FAKE)
    with pytest.raises(TargetError, match=r"python: start: answered nonsense: 'Welcome to the shell'"):
        await target.describe()


async def test_a_message_of_another_protocol_is_nonsense(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho '{\"hello\": 1}'\ncat >/dev/null\n")
    python.chmod(0o755)
    with pytest.raises(TargetError, match=r"start: answered nonsense: .*hello"):
        await RemoteTarget(str(python), adapter=FAKE).describe()


async def test_an_interpreter_that_is_not_there_is_named(tmp_path):
    target = RemoteTarget(str(tmp_path / "python"), adapter=FAKE)
    with pytest.raises(TargetError, match=r"python: cannot be run: No such file or directory"):
        await target.describe()


async def test_a_target_that_cannot_be_loaded_is_tried_once_and_says_why(tmp_path):
    adapter = tmp_path / "broken.py"
    adapter.write_text(f"open({str(tmp_path / 'tries')!r}, 'a').write('x')\nimport there_is_no_such_module\n")
    target = RemoteTarget(sys.executable, adapter=adapter)
    for _ in range(2):
        with pytest.raises(TargetError, match="cannot be loaded: ModuleNotFoundError: No module named 'there_is"):
            await target.describe()
    assert (tmp_path / "tries").read_text() == "x"


async def test_what_may_help_is_told_at_each_use_of_a_target_that_cannot_be_loaded():
    target = RemoteTarget(sys.executable, target="there_is_no_such_module:make")
    told = []
    for _ in range(2):
        with pytest.raises(TargetError) as caught:
            await target.describe()
        told.append(caught.value.install)
    assert told[0] == told[1] != ()


async def test_a_start_that_hangs_ends_after_the_time_given(tmp_path):
    adapter = tmp_path / "slow.py"
    adapter.write_text("import time\ntime.sleep(60)\n")
    with pytest.raises(TargetError, match=r"start: no answer within 0\.3 s"):
        await RemoteTarget(sys.executable, adapter=adapter, start_timeout=0.3).describe()
    assert workers() == []


def test_one_worker_serves_one_event_loop_after_another():
    target = RemoteTarget(sys.executable, adapter=FAKE)
    asyncio.run(target.describe())
    (first,) = workers()
    assert asyncio.run(target.play(job("say"), no_agent)) == {"rollouts": []}
    assert workers() == [first]
    asyncio.run(target.close())
    assert workers() == []


async def test_a_document_of_many_megabytes_crosses():
    async def agent(rollout, base_url, request_kwargs, metadata):
        return {"text": "x" * 3_000_000}

    async with fake() as target:
        document = await target.play(job("say", inputs=2), agent)
    assert [len(answer["text"]) for answer in document["rollouts"]] == [3_000_000] * 2


def test_exactly_one_of_adapter_and_target_is_due():
    with pytest.raises(ValueError, match="exactly one of them is due"):
        RemoteTarget(sys.executable)
