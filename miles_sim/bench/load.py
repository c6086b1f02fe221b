"""A load generator that costs the measured server's machine little: prepared requests, answers counted, not read."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from urllib.parse import urlsplit


class BenchError(RuntimeError):
    """What was to be measured cannot be: a server that does not start, an answer that is no 200."""


@dataclass(frozen=True)
class Load:
    """What was answered in how many seconds, and by which bytes."""

    answers: int
    seconds: float

    @property
    def rps(self) -> float:
        return self.answers / self.seconds

    def __add__(self, other: "Load") -> "Load":
        return Load(self.answers + other.answers, self.seconds + other.seconds)


def prepared(path: str, body: bytes) -> bytes:
    """A POST of JSON as HTTP/1.1 bytes for a connection that is kept."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode("ascii") + body


async def once(url: str, request: bytes) -> bytes:
    """The body that answers one prepared request."""
    reader, writer = await asyncio.open_connection(*_address(url))
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        return await reader.readexactly(_length(head))
    finally:
        writer.close()
        await writer.wait_closed()


async def fire(url: str, requests: Sequence[bytes], *, connections: int, seconds: float) -> Load:
    """Send `requests` round and round, one at a time on each connection, until `seconds` are over.

    What is under way by then is waited for, and counts. `BenchError` for an answer other than 200.
    """
    loop = asyncio.get_running_loop()
    source = cycle(requests)
    clients = [_Client(source) for _ in range(connections)]
    host, port = _address(url)
    for client in clients:
        await loop.create_connection(lambda client=client: client, host, port)  # type: ignore[misc]
    begin = time.perf_counter()
    try:
        for client in clients:
            client.start(begin + seconds)
        await asyncio.gather(*(client.done for client in clients))
        return Load(sum(client.answers for client in clients), time.perf_counter() - begin)
    finally:
        for client in clients:
            client.close()


class _Client(asyncio.Protocol):
    """One connection: asks, counts bytes until the answer is whole, asks again."""

    def __init__(self, requests: "cycle[bytes]") -> None:
        self.answers = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._transport: asyncio.WriteTransport | None = None
        self._head = b""
        self._left = 0
        self._until = 0.0

    def start(self, until: float) -> None:
        self._until = until
        self._ask()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._left == 0:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            try:
                self._left = _length(self._head[: end + 4])
            except BenchError as error:
                self._fail(error)
                return
            data, self._head = self._head[end + 4 :], b""
        self._left -= len(data)
        if self._left <= 0:
            self.answers += 1
            self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(BenchError(f"connection: lost in the middle of a measurement ({error})"))

    def _ask(self) -> None:
        if time.perf_counter() >= self._until:
            if not self.done.done():
                self.done.set_result(None)
        elif self._transport is not None:
            self._transport.write(next(self._requests))

    def _fail(self, error: BenchError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    if parts.hostname is None or parts.port is None:
        raise BenchError(f"url: {url!r} has no host and port")
    return parts.hostname, parts.port


def _length(head: bytes) -> int:
    """Bytes of the body that follows `head`."""
    status, *lines = head.split(b"\r\n")
    if status.split(b" ")[1:2] != [b"200"]:
        raise BenchError(f"status: {status.decode('latin-1')!r}, 200 is due")
    for line in lines:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise BenchError("content-length: missing from an answer")
