"""What a play of miles borrows of its process is as before when the play is over."""

import asyncio
import time
import types

import httpx
import pytest

from miles_sim.faults.locate import OPENER
from miles_sim.targets import miles_serving
from miles_sim.targets.miles_functions import Rollouts
from miles_sim.targets.miles_serving import http_client


@pytest.fixture
def http_utils():
    """A client that is made once a process, and a request that waits for a minute before it is made again."""
    utils = types.SimpleNamespace(asyncio=asyncio, _http_client=None, closed=[])

    async def aclose():
        utils.closed.append(True)

    def init_http_client(args):
        utils._http_client = types.SimpleNamespace(aclose=aclose)

    async def post():
        waited = await utils.asyncio.sleep(60, "again")
        return await utils.asyncio.wait_for(asyncio.sleep(0, waited), 1)

    utils.init_http_client, utils.post = init_http_client, post
    return utils


async def test_what_miles_asks_again_it_asks_at_once(http_utils):
    began = time.monotonic()
    async with http_client(http_utils, None, Rollouts()):
        assert await http_utils.post() == "again"
    assert time.monotonic() - began < 30


async def test_the_client_is_closed_and_the_pauses_are_given_back(http_utils):
    with pytest.raises(RuntimeError, match="play"):
        async with http_client(http_utils, None, Rollouts()):
            raise RuntimeError("the play failed")
    assert http_utils.closed == [True]
    assert (http_utils.asyncio, http_utils._http_client) == (asyncio, None)


async def test_who_opens_a_session_says_for_which_rollout(http_utils):
    rollouts = Rollouts()
    rollouts.enter(3)
    async with http_client(http_utils, None, rollouts):
        (name,) = http_utils._http_client.event_hooks["request"]
        told = []
        for path in ("/sessions", "/sessions/abc", "/health"):
            request = httpx.Request("POST", f"http://s{path}")
            await name(request)
            told.append(request.headers.get(OPENER))
    assert told == ["3", None, None]
    assert miles_serving.OPENER == OPENER
