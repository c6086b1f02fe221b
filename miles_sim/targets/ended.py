"""A rollout that a driver may end, as one does that wants no more of it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Ending(Generic[T]):
    """Runs one rollout's work, and cancels it on demand."""

    def __init__(self) -> None:
        self._task: asyncio.Task[T] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """End the work; who awaits its outcome goes on."""
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()

    async def outcome(self, work: Coroutine[Any, Any, T]) -> tuple[T | None, BaseException | None]:
        """What the work gives, or how it ended. Cancelled itself, it cancels the work and goes on being cancelled."""
        self._task = asyncio.ensure_future(work)
        try:
            return await self._task, None
        except Exception as error:
            return None, error
        except asyncio.CancelledError as error:
            if not self._cancelled:
                raise
            return None, error
        finally:
            self._task = None
