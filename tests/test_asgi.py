"""Apps of this process as hosts: what they are told, what they say, and how they break."""

import asyncio
from typing import Any

import httpx
import pytest

from miles_sim.asgi import AppTransport
from miles_sim.plain_http import PlainClient


def client(app: Any) -> PlainClient:
    return PlainClient(AppTransport(app))


async def answered(send: Any, body: bytes = b"yes", **start: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")], **start})
    await send({"type": "http.response.body", "body": body})


async def test_an_app_is_told_the_same_as_by_the_transport_of_httpx() -> None:
    told: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        told.append({**scope, "body": body})
        await answered(send)

    asked: dict[str, Any] = {"content": b"{}", "headers": {"content-type": "application/json", "X-Two": "b"}}
    for way in (AppTransport(app), httpx.ASGITransport(app=app)):
        response = await PlainClient(way).post("http://host:81/a%20b/c?d=%20e", **asked)
        assert (response.status_code, response.content, response.headers["x-own"]) == (200, b"yes", "1")
    ours, theirs = told
    assert ours == theirs
    assert ours["path"] == "/a b/c"


async def test_an_app_that_raises_has_answered_500() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("mine")

    assert (await client(app).get("http://host/")).status_code == 500


async def test_what_an_app_said_before_it_raised_stands() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 201})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError("mine")

    response = await client(app).get("http://host/")
    assert (response.status_code, response.content) == (201, b"half")


async def test_an_app_that_ends_without_a_whole_response_is_at_fault() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    with pytest.raises(RuntimeError, match="ended before its response did"):
        await client(app).get("http://host/")


@pytest.mark.parametrize("twice", ["http.response.start", "http.response.body"])
async def test_a_message_too_many_is_refused_to_the_app(twice: str) -> None:
    refused: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answered(send)
        try:
            await send({"type": twice, "status": 200})
        except RuntimeError as error:
            refused.append(str(error))

    await client(app).get("http://host/")
    (message,) = refused
    assert message.startswith(twice)


async def test_a_client_is_there_until_the_response_is_over() -> None:
    order: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()

        async def watch() -> None:
            order.append((await receive())["type"])

        watching = asyncio.ensure_future(watch())
        await asyncio.sleep(0)
        order.append("answering")
        await answered(send)
        await watching
        order.append((await receive())["type"])

    await client(app).get("http://host/")
    assert order == ["answering", "http.disconnect", "http.disconnect"]


async def test_an_app_is_cancelled_with_who_asks() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    asking = asyncio.ensure_future(client(app).get("http://host/"))
    await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert ended.is_set()


async def test_a_head_request_gets_no_body() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answered(send)

    assert (await client(app).head("http://host/")).content == b""
