"""A target that takes its process with it when it is given three rollouts at once."""

import os
from typing import Any

from miles_sim.targets.base import AgentFunction, Job
from miles_sim.targets.reference import ReferenceTarget


class DeadlyTarget(ReferenceTarget):
    async def play(self, job: Job, agent: AgentFunction) -> dict[str, Any]:
        if len(job["inputs"]) == 3:
            os._exit(9)
        return await super().play(job, agent)


def open_target() -> DeadlyTarget:
    return DeadlyTarget()
