"""A simulated engine on a socket, faults before it, and the client that meets them."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest

from miles_sim.engine.engine import Engine
from miles_sim.engine.settings import EngineSettings
from miles_sim.faults.chaos import ChaosInjector, ChaosTransport, Pick, Tally, by_plan, planned
from miles_sim.faults.plan import Fault
from miles_sim.faults.proxy import Upstream, proxied
from miles_sim.transport import serve


class Chaos:
    """Faults before an engine."""

    def __init__(self, engine: Engine, url: str, client: httpx.AsyncClient, tally: Tally, lines: list[str]) -> None:
        self.engine, self.url, self.client, self.tally, self._lines = engine, url, client, tally, lines

    @property
    def journal(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._lines]

    async def chat(self, **fields: Any) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 12, "seed": 1, "logprobs": True}
        return await self.client.post("/v1/chat/completions", json={"return_meta_info": True, **body, **fields})


@asynccontextmanager
async def before_an_engine(
    *kinds: str, pick: Pick | None = None, timeout: float | None = 20.0, **fault: Any
) -> AsyncIterator[Chaos]:
    engine = Engine(EngineSettings(), seed=3)
    tally, lines = Tally(), list[str]()
    chosen = pick or by_plan(planned([Fault(kind=kind, **fault) for kind in kinds]), seed=0)
    async with serve(engine.app) as behind:
        inner = Upstream(behind)
        injector = ChaosInjector(chosen, tally, seed=0)
        transport = ChaosTransport(inner, injector, upstream=behind, tally=tally, write=lines.append)
        async with (
            proxied(behind, transport) as url,
            httpx.AsyncClient(base_url=url, timeout=timeout, trust_env=False) as client,
        ):
            yield Chaos(engine, url, client, tally, lines)
        await inner.aclose()


@pytest.fixture(scope="session")
def chaos() -> Callable[..., AbstractAsyncContextManager[Chaos]]:
    """`async with chaos("http-503", when={"first": 1}) as c`: faults on a socket before an engine on a socket."""
    return before_an_engine
