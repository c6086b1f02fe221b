"""The engine behind respx: httpx clients reach it without a socket, and without being told."""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import httpx

from miles_sim.engine.engine import Engine

if TYPE_CHECKING:
    import respx


def engine_router(engine: Engine, base_url: str = "http://engine") -> "respx.MockRouter":
    """A router that answers everything under `base_url` as the engine would, byte for byte.

    Use it as a context manager or decorator. Sync clients are served too, outside of a running event loop.
    Needs respx (the `test` extra).
    """
    import respx

    router = respx.MockRouter(base_url=base_url, assert_all_called=False)
    prefix = httpx.URL(base_url).path.rstrip("/")

    async def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode("ascii").removeprefix(prefix)
        inside = httpx.Request(
            request.method,
            request.url.copy_with(raw_path=path.encode("ascii") or b"/"),
            headers=request.headers,
            content=request.content,
        )
        response = await httpx.ASGITransport(app=engine.app).handle_async_request(inside)
        body = await response.aread()
        return httpx.Response(response.status_code, headers=response.headers, content=body)

    def serve(request: httpx.Request) -> httpx.Response | Awaitable[httpx.Response]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(answer(request))
        return answer(request)

    router.route().mock(side_effect=serve)
    return router
