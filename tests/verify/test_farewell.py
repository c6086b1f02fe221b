"""The end of a loop on which something still runs."""

import asyncio

from miles_sim.verify.farewell import cancel_all


def test_what_still_runs_cleans_up_before_anything_is_closed() -> None:
    loop, put_away = asyncio.new_event_loop(), list[str]()

    async def play() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            await asyncio.sleep(0)
            put_away.append("what it had opened")

    try:
        task = loop.create_task(play())
        loop.run_until_complete(asyncio.sleep(0))
        cancel_all(loop)
        assert (task.cancelled(), put_away) == (True, ["what it had opened"])
        cancel_all(loop)
    finally:
        loop.close()
