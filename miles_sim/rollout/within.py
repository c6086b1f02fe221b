"""Work that may take no longer than so long."""

import asyncio
import sys
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def within(seconds: float | None, work: Awaitable[T]) -> T:
    """What `work` gives; `asyncio.TimeoutError` where it is not done in time, and then it is cancelled. None: no limit.

    It runs in the caller's own task, where Python has the means (3.11): `asyncio.wait_for` would begin another.
    """
    if sys.version_info >= (3, 11):
        async with asyncio.timeout(seconds):
            return await work
    else:
        return await asyncio.wait_for(work, seconds)
