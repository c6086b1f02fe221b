"""The way to the engine: how long it is waited for, whose certificate is checked, whose a connection is."""

import asyncio
import gc
import ssl
from collections.abc import Awaitable
from typing import Any

import httpx
import pytest

from miles_sim.rollout.errors import ClientGoneError, SessionError, UpstreamTransportError
from miles_sim.rollout.session.upstream import Call, Upstream


@pytest.mark.parametrize(
    ("url", "checked"), [("https://engine", True), ("HTTPS://engine", True), ("http://engine", False)]
)
async def test_the_certificate_of_an_engine_behind_https_is_checked(url: str, checked: bool) -> None:
    upstream = Upstream(url, request_timeout=1.0, transport=None)
    transport: Any = upstream._transport
    assert (transport._pool._ssl_context.verify_mode == ssl.CERT_REQUIRED) is checked
    await upstream.aclose()


class Noting(httpx.AsyncBaseTransport):
    """Answers everything, and notes what comes."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []
        self.closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(200, content=b"yes", headers=[("x-a", "1"), ("x-a", "2")])

    async def aclose(self) -> None:
        self.closed = True


async def test_a_request_goes_out_as_it_came_and_the_answer_comes_back_whole() -> None:
    transport = Noting()
    upstream = Upstream("http://engine/", request_timeout=12.5, transport=transport)
    answer = await upstream.send(Call("PUT", "a%20b", "c=d", [("x-b", "3")], b"body"), unless=[])
    (request,) = transport.requests
    assert (request.method, str(request.url), request.headers["x-b"]) == ("PUT", "http://engine/a%20b?c=d", "3")
    assert request.content == b"body"
    assert set(request.extensions["timeout"].values()) == {12.5}
    assert (answer.status_code, answer.body) == (200, b"yes")
    assert [value for name, value in answer.headers if name == "x-a"] == ["1", "2"]
    await upstream.send(Call("GET", "a", "", [], b""), unless=[])
    assert str(transport.requests[-1].url) == "http://engine/a"


async def test_a_transport_that_was_handed_in_stays_its_owners_to_close() -> None:
    transport = Noting()
    await Upstream("http://engine", request_timeout=1.0, transport=transport).aclose()
    assert not transport.closed


class Silent(httpx.AsyncBaseTransport):
    """An engine that never answers, where time is free: who has a read timeout gets it at once."""

    def __init__(self) -> None:
        self.timeouts: list[dict[str, float]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.timeouts.append(request.extensions["timeout"])
        raise httpx.ReadTimeout("", request=request)


async def test_a_silent_engine_is_given_up_by_the_read_timeout_of_the_request() -> None:
    silent = Silent()
    upstream = Upstream("http://engine", request_timeout=5.0, transport=silent)
    with pytest.raises(UpstreamTransportError, match="engine: no answer within request_timeout=5 s"):
        await upstream.send(Call("POST", "generate", "", [], b"{}"), unless=())
    assert [timeout["read"] for timeout in silent.timeouts] == [5.0]


class Endless(Noting):
    """Never answers, and notes that nobody waits for it any more."""

    left = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            await asyncio.Event().wait()
        finally:
            self.left = True
        raise RuntimeError("never reached")


async def test_when_a_request_is_given_up_nothing_of_it_is_under_way() -> None:
    async def reason() -> SessionError:
        return ClientGoneError("left")

    transport = Endless()
    upstream = Upstream("http://engine", request_timeout=5.0, transport=transport)
    with pytest.raises(ClientGoneError, match="left"):
        await upstream.send(Call("GET", "a", "", [], b""), unless=[reason])
    assert transport.left


class AtOnce(Noting):
    """An engine of this process: it has answered when it has been asked."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=b"done")


async def test_what_is_answered_at_once_is_waited_for_by_nobody() -> None:
    def reason() -> Awaitable[SessionError]:
        raise AssertionError("nobody need be asked")

    upstream = Upstream("http://engine", request_timeout=5.0, transport=AtOnce())
    answer = await upstream.send(Call("GET", "a", "", [], b""), unless=[reason])
    assert (answer.status_code, answer.body) == (200, b"done")


async def test_who_is_cancelled_before_the_answer_is_read_leaves_no_error_unread() -> None:
    unread: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unread.append(context))
    upstream = Upstream("http://engine", request_timeout=5.0, transport=Silent())
    asking = asyncio.ensure_future(upstream.send(Call("GET", "a", "", [], b""), unless=()))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    del asking
    gc.collect()
    assert unread == []
