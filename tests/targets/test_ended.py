"""A rollout that is ended from outside ends alone."""

import asyncio

import pytest

from miles_sim.targets.ended import Ending


async def forever() -> int:
    await asyncio.Event().wait()
    return 1


async def test_what_the_work_gives_or_raises_is_its_outcome() -> None:
    async def fails() -> int:
        raise KeyError("x")

    assert await Ending[float]().outcome(asyncio.sleep(0, 2.5)) == (2.5, None)
    value, error = await Ending[int]().outcome(fails())
    assert value is None
    assert isinstance(error, KeyError)


async def test_ended_work_has_an_outcome_and_its_caller_goes_on() -> None:
    ending = Ending[int]()
    waiting = asyncio.ensure_future(ending.outcome(forever()))
    await asyncio.sleep(0)
    ending.cancel()
    value, error = await waiting
    assert value is None
    assert isinstance(error, asyncio.CancelledError)


async def test_a_caller_that_is_cancelled_itself_stays_so_and_its_work_ends() -> None:
    began = asyncio.Event()
    over = []

    async def work() -> int:
        began.set()
        try:
            return await forever()
        finally:
            over.append(True)

    waiting = asyncio.ensure_future(Ending[int]().outcome(work()))
    await began.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert over == [True]


async def test_to_end_what_has_not_begun_is_no_error() -> None:
    ending = Ending[int]()
    ending.cancel()
