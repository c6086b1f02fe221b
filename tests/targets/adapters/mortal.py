"""Our own implementation, but for what the index of the first input asks: 90 dies, 91 hangs, 92 raises."""

import asyncio
import os

from miles_sim.targets.reference import ReferenceTarget


class Mortal(ReferenceTarget):
    async def play(self, job, agent):
        index = job["inputs"][0]["index"]
        if index == 90:
            os._exit(3)
        if index == 91:
            await asyncio.Event().wait()
        if index == 92:
            raise LookupError("port http://127.0.0.1:41234/sessions/0ab is gone")
        return await super().play(job, agent)


def open_target():
    return Mortal()
