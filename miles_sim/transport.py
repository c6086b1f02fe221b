"""One network for all parts of a play: hosts that live in this process, everything else over sockets."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

import httpx

from miles_sim.asgi import AppTransport
from miles_sim.asgi import ASGIApp as ASGIApp
from miles_sim.messages import goal_of


class LocalNetwork(httpx.AsyncBaseTransport):
    """An httpx transport that hands requests for a mounted host to its ASGI app.

    `async with httpx.AsyncClient(transport=network)` reaches `http://engine/…` after
    `network.mount("engine", app)`; any other host goes over a real connection.
    """

    def __init__(self) -> None:
        self._apps: dict[str, AppTransport] = {}
        self._outside: httpx.AsyncHTTPTransport | None = None
        self._front: httpx.AsyncBaseTransport | None = None
        self.cancellers: dict[int, Callable[[], object]] = {}
        """Of the play that runs: what cancels the task of each rollout, by its place."""

    def mount(self, host: str, app: ASGIApp) -> None:
        """Serve `host` by `app`; a host can be mounted once."""
        if host in self._apps:
            raise ValueError(f"host: {host!r} is mounted already")
        self._apps[host] = AppTransport(app)

    def unmount(self, host: str) -> None:
        del self._apps[host]

    @contextmanager
    def interposed(self, wrap: Callable[[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport]) -> Iterator[None]:
        """Meanwhile all requests go to `wrap(hosts)`, where `hosts` is the way that they take otherwise."""
        if self._front is not None:
            raise ValueError("wrap: something is interposed already")
        self._front = wrap(_Hosts(self))
        try:
            yield
        finally:
            self._front = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await (self.reach(request) if self._front is None else self._front.handle_async_request(request))

    async def reach(self, request: httpx.Request) -> httpx.Response:
        """Straight to the host, whatever is interposed."""
        inside = self._apps.get(goal_of(request).host)
        if inside is not None:
            return await inside.handle_async_request(request)
        # Made when it is needed: it loads the certificates of the system, which takes longer than a whole rollout.
        if self._outside is None:
            self._outside = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=None))
        return await self._outside.handle_async_request(request)

    async def aclose(self) -> None:
        if self._outside is not None:
            await self._outside.aclose()


class _Hosts(httpx.AsyncBaseTransport):
    """The hosts of a network, nothing between."""

    def __init__(self, network: LocalNetwork) -> None:
        self._network = network

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._network.reach(request)


class ListenError(OSError):
    """A host and port that cannot be listened on."""


@asynccontextmanager
async def serve(app: ASGIApp, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve `app` over a socket in the running event loop; gives the base URL, `http://host:port`.

    Port 0 takes a free one. `ListenError`, before anything runs, where the address cannot be had. On leaving, open
    connections get five seconds to finish.
    """
    listening = _listen(host, port)
    server = _server(app)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        started = asyncio.create_task(server.ready.wait())
        await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            started.cancel()
            await task
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        server.closing.set()
        await task
        listening.close()


def settle() -> None:
    """For a process that does nothing but serve from now on: the collector leaves alone what is there, and looks at
    the rest seldom, there being few cycles in it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, for asyncio switches Nagle's algorithm off where it reads TCP: else each answer of two writes waits 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ListenError(f"cannot listen on {host}:{port}: {reason}") from error
    listening.setblocking(False)
    return listening


class _Joined:
    """A transport that keeps the head of an answer until its body comes, if that is at once: one packet for both."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Asked at each answer."""
        return self._transport.is_closing()

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/"):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        if data:  # the end of a body of known length is none
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            self.write(b"")


def _protocol() -> type[asyncio.Protocol]:
    """Uvicorn's, by whatever parser there is."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class Protocol(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(_Joined(transport))

    return Protocol


def _server(app: ASGIApp) -> Any:
    """A uvicorn server that says when it listens, leaves the process's signals and logs alone, and stops at once."""
    import uvicorn

    class Server(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            self.ready = asyncio.Event()
            self.closing = asyncio.Event()

        def install_signal_handlers(self) -> None:
            """Uvicorn before 0.29."""

        def capture_signals(self) -> Any:
            return nullcontext()

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            self.server_state.default_headers = self.config.encoded_headers  # `server`, which the main loop would set
            self.ready.set()

        async def main_loop(self) -> None:
            await self.closing.wait()

    config = uvicorn.Config(
        app,
        http=_protocol(),
        log_config=None,
        log_level="error",
        access_log=False,
        lifespan="off",
        date_header=False,
        proxy_headers=False,  # nothing here asks who the client is
    )
    config.timeout_graceful_shutdown = 5
    return Server(config)
