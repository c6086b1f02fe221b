"""One network for all parts of a play: hosts that live in this process, everything else over sockets."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx

ASGIApp = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]


class LocalNetwork(httpx.AsyncBaseTransport):
    """An httpx transport that hands requests for a mounted host to its ASGI app.

    `async with httpx.AsyncClient(transport=network)` reaches `http://engine/…` after
    `network.mount("engine", app)`; any other host goes over a real connection.
    """

    def __init__(self) -> None:
        self._apps: dict[str, httpx.ASGITransport] = {}
        self._outside = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=None))

    def mount(self, host: str, app: ASGIApp) -> None:
        """Serve `host` by `app`; a host can be mounted once."""
        if host in self._apps:
            raise ValueError(f"host: {host!r} is mounted already")
        self._apps[host] = httpx.ASGITransport(app=app, raise_app_exceptions=False)

    def unmount(self, host: str) -> None:
        del self._apps[host]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        inside = self._apps.get(request.url.host)
        return await (inside or self._outside).handle_async_request(request)

    async def aclose(self) -> None:
        await self._outside.aclose()
