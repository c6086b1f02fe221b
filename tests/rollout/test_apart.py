"""Work of someone else's fails by itself, and is cancelled with who waits for it."""

import asyncio

import pytest

from miles_sim.rollout.apart import apart
from miles_sim.rollout.errors import CancelledInsideError


async def gives(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def test_what_the_work_gives_or_raises_comes_out() -> None:
    async def fails() -> None:
        raise KeyError("x")

    assert await apart(gives(3)) == 3
    with pytest.raises(KeyError, match="x"):
        await apart(fails())


async def test_a_cancellation_of_its_own_is_an_error_and_cancels_nobody() -> None:
    async def awaits_what_is_cancelled() -> None:
        inner = asyncio.ensure_future(gives(1))
        inner.cancel()
        await inner

    with pytest.raises(CancelledInsideError, match="cancelled from within"):
        await apart(awaits_what_is_cancelled())
    assert await gives(2) == 2


async def test_cancelled_from_outside_the_work_is_over_before_the_caller_is() -> None:
    seen = []

    async def tidies_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            seen.append("tidied")

    task = asyncio.ensure_future(apart(tidies_up()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["tidied"]


async def test_work_that_raises_while_it_is_cancelled_does_not_hide_the_cancellation() -> None:
    async def falls_over() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("gone")

    task = asyncio.ensure_future(apart(falls_over()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
