"""What lies between the parts of a play: a network that they share, or sockets, with the faults on either."""

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import httpx

from miles_sim.plain_http import PlainClient
from miles_sim.targets.base import Job
from miles_sim.transport import LocalNetwork
from miles_sim.verify.struck import Faults

AGENT_TIMEOUT = 600.0
"""Seconds that the agent waits for an answer, as OpenAI's client does by default."""

_EACH_ITS_OWN = httpx.Limits(max_connections=None, max_keepalive_connections=0)
"""A server whose handler raises closes the connection behind its answer: who used it again would now and then meet
that, and no two plays were alike."""


@dataclass(frozen=True)
class Passage:
    """How those who take part reach each other."""

    client: httpx.AsyncClient
    """The agent's."""
    engine_url: str
    """Where the target is to ask."""
    listen: int | None = None
    """Port that the target's session server is to listen on."""
    session_url: str | None = None
    """Where it is to be reached."""

    def told(self, job: Job) -> Job:
        """The job with the addresses that this passage needs."""
        job["engine_url"] = self.engine_url
        if self.listen is not None and self.session_url is not None:
            job["session_listen"], job["session_url"] = self.listen, self.session_url
        return job


@asynccontextmanager
async def passage(
    engine_url: str, network: LocalNetwork | None, faults: Faults | None, *, driver: bool
) -> AsyncIterator[Passage]:
    """With `network` all that goes through it may be struck. Else the agent's requests may, and through proxies those
    to the engine and, where the target can be asked for that (`driver`), those of the driver."""
    if network is not None:  # its owner's to close
        client = PlainClient(network, timeout=AGENT_TIMEOUT)
        if faults is None:
            yield Passage(client, engine_url)
            return
        with network.interposed(partial(faults.between, engine_url=engine_url)):
            yield Passage(client, engine_url)
        return
    async with AsyncExitStack() as stack:
        outside = await stack.enter_async_context(
            httpx.AsyncHTTPTransport(limits=_EACH_ITS_OWN, verify=False, trust_env=False)
        )
        if faults is None:
            yield Passage(PlainClient(outside, timeout=AGENT_TIMEOUT), engine_url)
            return
        yield await _by_proxy(stack, outside, faults, engine_url, driver=driver and faults.strikes("driver"))


async def _by_proxy(
    stack: AsyncExitStack, outside: httpx.AsyncHTTPTransport, faults: Faults, engine_url: str, *, driver: bool
) -> Passage:
    from miles_sim.faults.proxy import proxied

    way = faults.between(outside, engine_url, edges=("session",))
    client = PlainClient(way, timeout=AGENT_TIMEOUT)
    struck = faults.between(outside, engine_url, edges=("engine",))
    engine = await stack.enter_async_context(proxied(engine_url, struck))
    if not driver:
        return Passage(client, engine)
    port = _free_port()
    struck = faults.between(outside, engine_url, edges=("driver",))
    sessions = await stack.enter_async_context(proxied(f"http://127.0.0.1:{port}", struck))
    return Passage(client, engine, port, sessions)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
