"""An adapter whose job says what to do; the real targets behave, this one need not."""

import asyncio
import os
import signal
import sys
import time

from .worker import error_document


class Fake:
    async def describe(self):
        return {
            "name": "fake",
            "version": "1",
            "python": sys.version.split()[0],
            "optimize": sys.flags.optimize,
            "capabilities": ["session.v1"],
            "absent": {"session.v2": "it is a fake"},
            "stand_ins": [],
        }

    async def play(self, job, agent):
        do = job["session"]
        if do == "print":
            print("a print of the target")
            os.system("echo a print of its child")  # noqa: ASYNC221 - it has nothing else to do
        if do == "read":
            return {"input": sys.stdin.read()}
        if do == "path":
            return {"folder": os.path.dirname(__file__) in sys.path, "path": sys.path[:2]}
        if do == "raise":
            raise LookupError("nothing to play")
        if do == "die":
            print("about to die", file=sys.stderr)
            os._exit(7)
        if do == "hang":
            print("about to hang", file=sys.stderr)
            time.sleep(60)  # noqa: ASYNC251 - a target that blocks its loop is the point
        if do == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if do == "wait":
            await asyncio.Event().wait()
        if do == "list":
            return []
        if do == "give up":
            call = asyncio.ensure_future(agent(0, "http://session", {}, {}))
            await asyncio.wait([call], timeout=0.05)
            call.cancel()
            return {"rollouts": []}
        answers = [agent(n, f"http://session/{n}", {"seed": n}, {}) for n in range(len(job["inputs"]))]
        seen = await asyncio.gather(*answers, return_exceptions=True)
        return {"rollouts": [error_document(x) if isinstance(x, BaseException) else x for x in seen]}

    async def close(self):
        print("closed", file=sys.stderr)


def open_target():
    return Fake()


def open_nothing():
    raise ImportError("no such thing here")
