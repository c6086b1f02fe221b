"""Work of someone else's, awaited so that it can fail in every way but take its caller along."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from miles_sim.rollout.errors import CancelledInsideError

T = TypeVar("T")


async def apart(work: Awaitable[T]) -> T:
    """What `work` gives or raises, run as a task of its own.

    `CancelledInsideError` where it raises `asyncio.CancelledError` though nobody cancelled its caller: whoever awaits a
    cancelled task of its own does. Where the caller is cancelled, so is the work, and the caller's cancellation goes
    on once it is over.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    if task.cancelled():
        raise CancelledInsideError("cancelled from within")
    try:
        return task.result()
    finally:
        del task  # its error holds this frame, which must not hold it in turn
