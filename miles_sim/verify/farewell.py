"""The end of an event loop on which something still runs: whoever stops a run does so in the middle of a play."""

import asyncio

_SECONDS = 5.0
"""For what was cancelled to clean up behind itself."""


def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel every task of a loop that is not running, and let each end, before anything that they use is closed."""
    left = asyncio.all_tasks(loop)
    if left:
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left, timeout=_SECONDS))
