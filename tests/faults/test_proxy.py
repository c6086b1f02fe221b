"""What a transport raises happens on the socket, and what it answers is handed on byte by byte as it comes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from miles_sim.faults.proxy import Upstream, UpstreamError, proxied, reach
from miles_sim.transport import ListenError, serve


class Given(httpx.AsyncBaseTransport):
    """Answers as `answer(request)` does."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        found = self.answer(request)
        return await found if asyncio.iscoroutine(found) else found


class Pieces(httpx.AsyncByteStream):
    """Pieces of a body; an error among them is raised, an event waited for."""

    def __init__(self, *pieces: Any) -> None:
        self.pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            else:
                yield piece


def sized(length: int) -> list[tuple[str, str]]:
    return [("content-length", str(length))]


def raising(error: Exception) -> Given:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error

    return Given(answer)


@pytest.mark.parametrize(
    ("error", "met"),
    [
        (httpx.ConnectError("refused"), httpx.ReadError),
        (httpx.ReadError("reset"), httpx.ReadError),
        (httpx.RemoteProtocolError("closed"), httpx.RemoteProtocolError),
    ],
)
@pytest.mark.parametrize("begun", [False, True])
async def test_a_broken_exchange_is_broken_for_the_client(error: Exception, met: type[Exception], begun: bool) -> None:
    body = {"headers": [("content-length", "9")], "stream": Pieces(b"half", error)}
    transport = Given(lambda request: httpx.Response(200, **body)) if begun else raising(error)
    async with proxied("http://engine", transport) as url, httpx.AsyncClient(base_url=url) as client:
        with pytest.raises(met):
            await client.get("/x")
        assert len(transport.requests) == 1


async def test_headers_and_pieces_are_there_before_the_rest_is() -> None:
    more = asyncio.Event()
    transport = Given(lambda request: httpx.Response(200, stream=Pieces(b"one", more, b"two")))
    async with (
        proxied("http://engine", transport) as url,
        httpx.AsyncClient(base_url=url) as client,
        client.stream("GET", "/x") as response,
    ):
        assert response.status_code == 200
        pieces = response.aiter_raw()
        assert await anext(pieces) == b"one"
        more.set()
        assert [piece async for piece in pieces] == [b"two"]


async def test_requests_and_answers_are_handed_on_as_they_are() -> None:
    headers = [("x-a", "1"), ("x-a", "2"), ("connection", "close")]
    transport = Given(lambda request: httpx.Response(418, headers=headers, stream=Pieces(b"\x1f\x8b", b"-tea")))
    async with proxied("http://engine/behind/", transport) as url, httpx.AsyncClient(base_url=url) as client:
        found = await client.post("/a%20b?c=d", content=b"body", headers={"x-b": "3"})
        again = await client.post("/again", content=Pieces(b"in ", b"chunks").__aiter__())
        assert again.status_code == 418
    (first, second) = transport.requests
    assert (found.status_code, found.content, found.headers.get_list("x-a")) == (418, b"\x1f\x8b-tea", ["1", "2"])
    assert str(first.url) == "http://engine/behind/a%20b?c=d"
    assert (first.content, first.headers["x-b"], first.headers["host"]) == (b"body", "3", "engine")
    assert second.content == b"in chunks"


async def test_one_connection_serves_request_after_request_and_many_serve_side_by_side() -> None:
    transport = Given(
        lambda request: httpx.Response(
            200, headers=sized(len(request.url.path)), stream=Pieces(request.url.path.encode())
        )
    )
    async with proxied("http://engine", transport) as url:
        reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
        for n in range(3):
            writer.write(f"GET /{n} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"200" in head
            assert await reader.readexactly(2) == f"/{n}".encode()
        writer.close()
        async with httpx.AsyncClient(base_url=url) as client:
            texts = [r.text for r in await asyncio.gather(*(client.get(f"/{n}") for n in range(10, 60)))]
        assert texts == [f"/{n}" for n in range(10, 60)]


async def test_a_request_that_comes_before_its_turn_is_answered_in_its_turn() -> None:
    transport = Given(
        lambda request: httpx.Response(
            200, headers=sized(len(request.url.path)), stream=Pieces(request.url.path.encode())
        )
    )
    async with proxied("http://engine", transport) as url:
        reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
        writer.write(b"GET /1 HTTP/1.1\r\nhost: x\r\n\r\nGET /2 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        told = await reader.read()
        writer.close()
    assert told.index(b"\r\n\r\n/1") < told.index(b"\r\n\r\n/2")


async def test_a_client_that_leaves_cancels_what_it_asked_for() -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def wait() -> httpx.Response:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    async with proxied("http://engine", Given(lambda request: wait())) as url:
        _, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await asyncio.wait_for(asked.wait(), 10)
        writer.close()
        await asyncio.wait_for(cancelled.wait(), 10)


async def test_stopping_ends_what_is_open() -> None:
    silent = Given(lambda request: httpx.Response(200, stream=Pieces(b"one", asyncio.Event())))
    async with httpx.AsyncClient() as client:
        async with proxied("http://engine", silent) as url:
            response = await client.send(client.build_request("GET", url), stream=True)
        with pytest.raises(httpx.TransportError):
            await response.aread()


async def test_a_client_may_wait_for_leave_to_send_its_body() -> None:
    transport = Given(lambda request: httpx.Response(200, headers=sized(4), stream=Pieces(request.content)))
    async with proxied("http://engine", transport) as url:
        reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n")
        assert b" 100 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"body")
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(4) == b"body"
        writer.close()


async def test_what_is_no_http_ends_its_own_connection_alone() -> None:
    transport = Given(lambda request: httpx.Response(200, stream=Pieces()))
    async with proxied("http://engine", transport) as url, httpx.AsyncClient(base_url=url) as client:
        reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
        writer.write(b"\x00\x01 nonsense\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        assert (await client.get("/")).status_code == 200


@pytest.mark.parametrize("asked", ["PRI * HTTP/2.0", "OPTIONS * HTTP/1.1", "GET http://elsewhere/x HTTP/1.1"])
async def test_a_target_that_is_no_path_is_refused_and_never_reaches_the_upstream(asked: str) -> None:
    transport = Given(lambda request: httpx.Response(200))
    async with proxied("http://engine", transport) as url:
        reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
        writer.write(f"{asked}\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
    target = asked.split()[1]
    assert (answer.split()[1], f"target: '{target}', a path is due".encode() in answer) == (b"400", True)
    assert transport.requests == []


async def closed_url() -> str:
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    async with serve(app) as url:
        return url


async def test_an_upstream_that_is_not_there_is_told_by_name() -> None:
    gone = await closed_url()
    with pytest.raises(UpstreamError, match=f"upstream {gone}"):
        await reach(gone)
    inner = Upstream(gone)
    async with proxied(gone, inner) as url, httpx.AsyncClient(base_url=url) as client:
        answer = await client.post("/generate", json={})
    await inner.aclose()
    assert (answer.status_code, f"upstream {gone}" in answer.text) == (502, True)


async def test_an_address_that_cannot_be_had_is_refused_by_name() -> None:
    transport = Given(lambda request: httpx.Response(200))
    async with proxied("http://engine", transport) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{port}"):
            async with proxied("http://engine", transport, port=port):
                pass
