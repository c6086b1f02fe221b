"""The way to the engine: one request, waited for as long as someone wants the answer."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import httpx

from miles_sim.rollout.errors import SessionError, UpstreamTransportError
from miles_sim.rollout.session.headers import Headers


@dataclass(frozen=True)
class Answer:
    """What came back, body decoded."""

    status_code: int
    headers: Headers
    body: bytes


@dataclass(frozen=True)
class Call:
    """What is sent. `path` is relative to the engine, percent-encoded."""

    method: str
    path: str
    query: str
    headers: Headers
    body: bytes


class Upstream:
    """An engine, or a router before several.

    `transport`: where requests go; it stays the caller's to close. None: real connections.
    """

    def __init__(self, url: str, *, request_timeout: float, transport: httpx.AsyncBaseTransport | None) -> None:
        self._url = url.rstrip("/")
        self._request_timeout = request_timeout
        self._patience = httpx.Timeout(request_timeout).as_dict()
        self._owned = transport is None
        # No client around it: a client would carry one session's cookies into the others.
        self._transport = transport or _connections(url)

    async def send(self, call: Call, *, unless: Sequence[Callable[[], Awaitable[SessionError]]]) -> Answer:
        """The engine's answer, whatever its status.

        `unless`: each gives what waits for a reason to give up, which is then raised; the engine sees its client
        leave. A future that is given is others' too, and goes on.
        `UpstreamTransportError` without a whole answer in time.
        """
        answer = asyncio.ensure_future(self._answer(call))
        tasks: list[asyncio.Future[Any]] = [answer]
        try:
            await asyncio.sleep(0)
            if answer.done():  # as an engine in this process has: nothing need be waited for
                return answer.result()
            given = [reason() for reason in unless]
            reasons = [asyncio.ensure_future(each) for each in given]
            tasks += [made for made, each in zip(reasons, given, strict=True) if made is not each]
            await asyncio.wait([answer, *reasons], timeout=self._request_timeout, return_when=asyncio.FIRST_COMPLETED)
            for reason in reasons:
                if reason.done():
                    raise reason.result()
            if answer.done():
                return answer.result()
            raise self._late()
        finally:
            for task in tasks:
                task.cancel()
            if len(tasks) > 1 or not answer.done():
                await asyncio.gather(*tasks, return_exceptions=True)
            elif not answer.cancelled():
                answer.exception()  # read, so that nothing warns of one that nobody waits for
            del answer  # its error holds this frame, which must not hold it in turn
            tasks.clear()

    async def aclose(self) -> None:
        if self._owned:
            await self._transport.aclose()

    def _late(self) -> UpstreamTransportError:
        return UpstreamTransportError(f"engine: no answer within request_timeout={self._request_timeout:g} s")

    async def _answer(self, call: Call) -> Answer:
        url = f"{self._url}/{call.path}" + (f"?{call.query}" if call.query else "")
        try:
            response = await self._transport.handle_async_request(self._request(call, _parsed(url)))
            try:
                body = await response.aread()
            finally:
                await response.aclose()
        except httpx.TimeoutException as error:
            raise self._late() from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UpstreamTransportError(f"engine: {type(error).__name__}: {error}") from error
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in response.headers.raw]
        return Answer(response.status_code, headers, body)

    def _request(self, call: Call, url: httpx.URL) -> httpx.Request:
        """Its headers are given, so that httpx need not find out what is known: it would take longer than all else."""
        headers: list[tuple[str, str]] = [("Host", url.netloc.decode()), *call.headers]
        if call.body or call.method in ("POST", "PUT", "PATCH"):
            headers.append(("Content-Length", str(len(call.body))))
        extensions = {"timeout": self._patience}
        request = httpx.Request(
            call.method, url, headers=headers, stream=httpx.ByteStream(call.body), extensions=extensions
        )
        request.read()
        return request


@lru_cache(maxsize=64)
def _parsed(url: str) -> httpx.URL:
    return httpx.URL(url)


def _connections(url: str) -> httpx.AsyncHTTPTransport:
    # Redirects are not followed, so certificates, which are slow to load, matter for an https engine alone.
    return httpx.AsyncHTTPTransport(
        verify=url.lower().startswith("https:"), limits=httpx.Limits(max_connections=None), trust_env=False
    )
