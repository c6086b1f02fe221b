"""miles' session server and its process-wide HTTP client, for one play. Standard library and uvicorn only."""

import asyncio
import contextlib
import socket
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from .miles_functions import Rollouts

OPENER = "x-miles-sim-rollout"
"""Header that says for which rollout a session is opened; nobody but a fault reads it."""
PAUSE = 0.002
"""Seconds, in place of one, between miles' attempts at a request: as many as it makes, without a minute of waiting."""
PAUSES = "miles.utils.http_utils: the pause between attempts"
"""Names that in a report; no argument of a rollout and no variable of the environment sets it."""


@contextmanager
def listener(port: int) -> Iterator[socket.socket]:
    """A socket that listens on that loopback port, 0 for a free one: who connects early waits."""
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(("127.0.0.1", port))
        found.listen(1024)
        yield found


@asynccontextmanager
async def served(app: Any, at: socket.socket) -> AsyncIterator[None]:
    """Serve `app` in this event loop, signals left alone."""
    import uvicorn

    closing = asyncio.Event()

    class Server(uvicorn.Server):
        def install_signal_handlers(self) -> None:
            """Older uvicorn."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Newer uvicorn."""
            yield

        async def main_loop(self) -> None:
            """In place of a look at the clock ten times a second; idle connections are not waited for either."""
            await self.on_tick(0)  # its headers: a proxy of miles hands on such of the engine beside them
            await closing.wait()
            for connection in list(self.server_state.connections):
                connection.shutdown()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    server = Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=5))
    serving = asyncio.ensure_future(server.serve(sockets=[at]))
    try:
        yield
    finally:
        server.should_exit = True
        closing.set()
        await serving


@asynccontextmanager
async def http_client(http_utils: Any, args: Namespace, rollouts: Rollouts) -> AsyncIterator[None]:
    """miles' process-wide HTTP client, for one play. What it asks again, it asks at once: `PAUSE`."""

    async def name(request: Any) -> None:
        if request.url.path == "/sessions" and rollouts.current is not None:
            request.headers[OPENER] = str(rollouts.current)

    http_utils.init_http_client(args)
    http_utils._http_client.event_hooks = {"request": [name]}
    try:
        with replaced(http_utils, "asyncio", _Hasty()):
            yield
    finally:
        client, http_utils._http_client = http_utils._http_client, None
        if client is not None:
            await client.aclose()


class _Hasty:
    """The module `asyncio`, but that nobody sleeps long."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float, result: Any = None) -> Any:
        return await asyncio.sleep(min(seconds, PAUSE), result)


@contextmanager
def replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    """`value` under that name of the module, for a while."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def open_sessions(app: Any) -> int | None:
    """Sessions in the server's registry, which only its route functions hold; None: not found."""
    for route in app.routes:
        for cell in getattr(getattr(route, "endpoint", None), "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # a cell that is empty yet
                held = cell.cell_contents
                for registry in (held, getattr(held, "registry", None)):
                    sessions = getattr(registry, "sessions", None)
                    if isinstance(sessions, dict):
                        return len(sessions)
    return None
