"""A server on a socket that hands each request to an httpx transport, and ends each answer as that transport ends it.

With a `FaultTransport` behind it, what is struck there happens on a real connection: a reset is a reset, a stall is
silence. A connection that is accepted can no longer be refused: `httpx.ConnectError` becomes a reset as well.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import h11
import httpx

from miles_sim.transport import ListenError

_CONNECTION = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect"}
)
_PIECE = 256 * 1024
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of zero seconds: closing sends RST."""


class UpstreamError(OSError):
    """The other side could not be reached, or broke off before it answered; no fault did it."""


class Upstream(httpx.AsyncBaseTransport):
    """Real connections. `UpstreamError` names `url` where there is no answer."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connections = httpx.AsyncHTTPTransport(
            verify=url.lower().startswith("https:"), limits=httpx.Limits(max_connections=None), trust_env=False
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return await self._connections.handle_async_request(request)
        except httpx.TransportError as error:
            raise UpstreamError(f"upstream {self._url}: {type(error).__name__}: {error}") from error

    async def aclose(self) -> None:
        await self._connections.aclose()


async def reach(url: str) -> None:
    """`UpstreamError`, by name, where nothing listens at the URL's host and port."""
    parsed = httpx.URL(url)
    try:
        _, writer = await asyncio.open_connection(parsed.host, parsed.port or (443 if parsed.scheme == "https" else 80))
    except OSError as error:
        raise UpstreamError(f"upstream {url}: {getattr(error, 'strerror', None) or error}") from error
    writer.close()


@asynccontextmanager
async def proxied(
    upstream: str, transport: httpx.AsyncBaseTransport, *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[str]:
    """Serve `upstream` through `transport`; gives the base URL. `ListenError` where the address cannot be had.

    `upstream`: base URL, to which each request's path is added. A client that leaves cancels its exchange. On
    leaving, connections that are open are closed. `transport` stays the caller's to close.
    """
    proxy = _Proxy(upstream.rstrip("/"), transport)
    try:
        server = await asyncio.start_server(proxy.connected, host, port, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ListenError(f"cannot listen on {host}:{port}: {reason}") from error
    shown = f"[{host}]" if ":" in host else host
    try:
        yield f"http://{shown}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await proxy.aclose()


class _Proxy:
    def __init__(self, upstream: str, transport: httpx.AsyncBaseTransport) -> None:
        self._upstream = upstream
        self._transport = transport
        self._tasks: set[asyncio.Task[None]] = set()

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(_Connection(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, connection: "_Connection") -> None:
        try:
            while (asked := await connection.request()) is not None:
                if not await connection.while_there(self._exchange(connection, *asked)):
                    break
                connection.next()
        except (h11.RemoteProtocolError, ConnectionError):
            pass
        finally:
            connection.close()

    async def _exchange(self, connection: "_Connection", head: h11.Request, body: bytes) -> bool:
        """Whether the connection can be used again."""
        target = head.target.decode()
        if not target.startswith("/"):  # `*`, by which a router asks whether HTTP/2 is spoken here, or a whole URL
            refused = f"target: {target!r}, a path is due"
            return await connection.answer(400, [("content-type", "text/plain")], _once(refused.encode()))
        request = httpx.Request(
            head.method.decode(),
            self._upstream + target,
            headers=[(name, value) for name, value in head.headers if name.decode() not in _CONNECTION | {"host"}],
            content=body,
        )
        try:
            response = await self._transport.handle_async_request(request)
        except UpstreamError as error:
            return await connection.answer(502, [("content-type", "text/plain")], _once(str(error).encode()))
        except httpx.RemoteProtocolError:
            return False
        except httpx.TransportError:
            connection.reset()
            return False
        try:
            headers = [(name.decode(), value.decode("latin-1")) for name, value in response.headers.raw]
            return await connection.answer(response.status_code, headers, response.aiter_raw())
        except httpx.RemoteProtocolError:
            return False
        except httpx.TransportError:
            connection.reset()
            return False
        finally:
            await response.aclose()


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


class _Connection:
    """One client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._protocol = h11.Connection(h11.SERVER)
        self._transport = writer.transport
        self._transport.set_write_buffer_limits(high=0)  # what is written has left before anything ends
        self._socket: Any = self._transport.get_extra_info("socket")
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reading: asyncio.Task[bytes] | None = None

    async def request(self) -> tuple[h11.Request, bytes] | None:
        """The next one, whole; None where the client is gone."""
        head: h11.Request | None = None
        parts: list[bytes] = []
        while True:
            event = self._protocol.next_event()
            if event is h11.NEED_DATA:
                if self._protocol.they_are_waiting_for_100_continue:
                    await self._send(h11.InformationalResponse(status_code=100, headers=[]))
                self._protocol.receive_data(await self._received())
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return head, b"".join(parts)
            else:  # closed, or paused behind a connection that cannot be used again
                return None

    async def while_there(self, exchange: Any) -> bool:
        """What `exchange` gives; False, and it is cancelled, where the client leaves before that."""
        task: asyncio.Task[bool] = asyncio.ensure_future(exchange)
        try:
            while not task.done():
                await asyncio.wait({task, self._read()}, return_when=asyncio.FIRST_COMPLETED)
                if not task.done() and (self._read().exception() or not self._read().result()):
                    return False
                if not task.done():
                    await asyncio.wait({task})  # a request that came before its turn
            return task.result()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task

    async def answer(self, status: int, headers: list[tuple[str, str]], body: AsyncIterator[bytes]) -> bool:
        """Whether the connection can be used again."""
        kept = [(name, value) for name, value in headers if name.lower() not in _CONNECTION]
        if not any(name.lower() == "content-length" for name, _ in kept):
            kept.append(("transfer-encoding", "chunked"))
        await self._send(h11.Response(status_code=status, headers=kept))
        async for piece in body:
            await self._send(h11.Data(data=piece))
        await self._send(h11.EndOfMessage())
        return self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE

    def next(self) -> None:
        self._protocol.start_next_cycle()

    def reset(self) -> None:
        """Break the connection."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._writer.close()

    def _read(self) -> "asyncio.Task[bytes]":
        """What comes next, begun at most once at a time."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._reader.read(_PIECE))
        return self._reading

    async def _received(self) -> bytes:
        data = await self._read()
        self._reading = None
        return data

    async def _send(self, event: h11.Event) -> None:
        if data := self._protocol.send(event):
            self._writer.write(data)
            await self._writer.drain()
