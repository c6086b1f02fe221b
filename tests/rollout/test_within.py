"""Work with a limit of time."""

import asyncio

import pytest

from miles_sim.rollout.within import within


async def test_work_that_is_done_in_time_gives_its_result() -> None:
    assert await within(60.0, asyncio.sleep(0, "done")) == "done"
    assert await within(None, asyncio.sleep(0, "done")) == "done"


async def test_work_that_is_late_is_cancelled() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    with pytest.raises(asyncio.TimeoutError):
        await within(0.001, work())
    assert ended == ["ended"]


async def test_an_error_and_a_cancellation_are_handed_on() -> None:
    async def fails() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await within(60.0, fails())
    task = asyncio.ensure_future(within(60.0, asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
