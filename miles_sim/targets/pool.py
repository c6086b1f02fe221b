"""Several processes of one target as one target: as many plays go on at the same time."""

import asyncio
from collections.abc import Sequence
from typing import Any

from miles_sim.targets.base import AgentFunction, Job, Target, TargetInfo


class TargetPool:
    """Hands each play to a member that is free. Used from one event loop."""

    def __init__(self, members: Sequence[Target]) -> None:
        if not members:
            raise ValueError("members: at least one is due")
        self._members = list(members)
        self._free: asyncio.LifoQueue[Target] | None = None

    @property
    def plays_at_once(self) -> int:
        return len(self._members)

    @property
    def bounds_plays(self) -> bool:
        return all(getattr(member, "bounds_plays", False) for member in self._members)

    async def describe(self) -> TargetInfo:
        return await self._members[0].describe()

    async def play(self, job: Job, agent: AgentFunction) -> dict[str, Any]:
        if self._free is None:
            self._free = asyncio.LifoQueue()
            for member in reversed(self._members):
                self._free.put_nowait(member)
        member = await self._free.get()
        try:
            return await member.play(job, agent)
        finally:
            self._free.put_nowait(member)

    async def close(self) -> None:
        await asyncio.gather(*(member.close() for member in self._members))
