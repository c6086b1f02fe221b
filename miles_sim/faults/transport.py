"""Strikes carried out in this process: an httpx transport between two parts of a play."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NoReturn

import httpx
import orjson

from miles_sim.faults.injector import Injector, Meeting
from miles_sim.faults.strike import Answer, Asked, CannotStrike, Life, Strike

Live = Callable[[Life], Awaitable[None]]
"""Makes something befall the engine."""
_DROPPED = frozenset({"content-length", "content-encoding", "transfer-encoding"})
"""Response headers that belong to the connection, not to the body that was read."""


class FaultTransport(httpx.AsyncBaseTransport):
    """Hands requests to `inner`, less what `injector` strikes.

    Time is virtual: who waits for what never comes gets `httpx.ReadTimeout` at once, if the request has a read
    timeout; else it waits until it is cancelled. `inner` stays the caller's to close.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, injector: Injector, live: Live) -> None:
        self._inner = inner
        self._injector = injector
        self._live = live

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        asked = Asked(request.method, request.url.raw_path.decode(), tuple(request.headers.multi_items()), body)
        meeting = self._injector.meet(asked)
        if meeting is None:
            return await self._inner.handle_async_request(request)
        strike = meeting.strike
        await self._lives(strike, "before")
        if strike.ending == "refused":
            raise httpx.ConnectError("all connection attempts failed", request=request)
        answers = await self._delivered(strike, asked, request)
        await self._lives(strike, "after")
        return await _ended(strike, self._changed(meeting, answers, asked), request)

    async def _lives(self, strike: Strike, moment: str) -> None:
        for life in (each for each in strike.life if each.moment == moment):
            await self._live(life)

    def _changed(self, meeting: Meeting, answers: list[Answer], asked: Asked) -> Answer | None:
        """What is handed over. What was answered and is not handed over as it was is lost."""
        strike, entry = meeting.strike, meeting.entry
        given = answers[-1] if answers else strike.stand_in(asked)
        changed = given
        if given is not None and entry is not None:
            try:
                changed = strike.altered(given, self._injector.earlier(meeting))
            except CannotStrike as error:
                entry.cannot = str(error)
        whole = strike.ending == "whole" and changed == given
        if entry is not None:
            lost = answers[:-1] if whole else answers
            entry.lost += [name for answer in lost if (name := response_id(answer.body))]
        if changed is not None and strike.ending == "whole":
            self._injector.handed_over(meeting, changed)
        return changed

    async def _delivered(self, strike: Strike, asked: Asked, request: httpx.Request) -> list[Answer]:
        sent = strike.ask(asked)
        if strike.at_once:
            return list(await asyncio.gather(*(self._deliver(sent, request) for _ in range(strike.deliveries))))
        return [await self._deliver(sent, request) for _ in range(strike.deliveries)]

    async def _deliver(self, asked: Asked, request: httpx.Request) -> Answer:
        headers = [(name, value) for name, value in asked.headers if name.lower() != "content-length"]
        copy = httpx.Request(
            asked.method,
            request.url.copy_with(raw_path=asked.path.encode()),
            headers=headers,
            content=asked.body,
            extensions=request.extensions,
        )
        response = await self._inner.handle_async_request(copy)
        try:
            body = await response.aread()
        finally:
            await response.aclose()
        kept = tuple((name, value) for name, value in response.headers.multi_items() if name not in _DROPPED)
        return Answer(response.status_code, body, kept)


def response_id(body: bytes) -> str | None:
    """Id of the generation that an answer of the engine holds; None for what holds none."""
    try:
        document = orjson.loads(body)
        name = document["meta_info"]["id"] if "meta_info" in document else document["id"]
    except (ValueError, LookupError, TypeError):
        return None
    return name if isinstance(name, str) else None


async def _ended(strike: Strike, answer: Answer | None, request: httpx.Request) -> httpx.Response:
    if answer is None or (strike.ending != "whole" and not strike.headers):
        await _broken(strike, request, begun=False)
    cut = None if strike.ending == "whole" else strike.body_bytes or 0
    headers = [*answer.headers, ("content-length", str(len(answer.body)))]
    return httpx.Response(
        answer.status, headers=headers, stream=_Body(strike, answer.body[:cut], request), request=request
    )


async def _broken(strike: Strike, request: httpx.Request, *, begun: bool) -> NoReturn:
    if strike.ending == "stalled":
        if (request.extensions.get("timeout") or {}).get("read") is None:
            await asyncio.Event().wait()
        raise httpx.ReadTimeout("", request=request)
    if strike.ending == "closed":
        what = "sending complete message body" if begun else "sending a response"
        raise httpx.RemoteProtocolError(f"peer closed connection without {what}", request=request)
    raise httpx.ReadError("connection reset by peer", request=request)


class _Body(httpx.AsyncByteStream):
    """The bytes that are handed over, then the ending."""

    def __init__(self, strike: Strike, body: bytes, request: httpx.Request) -> None:
        self._strike, self._body, self._request = strike, body, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = self._strike.chunk_bytes or len(self._body) or 1
        for start in range(0, len(self._body), size):
            yield self._body[start : start + size]
            await asyncio.sleep(0)
        if self._strike.ending != "whole":
            await _broken(self._strike, self._request, begun=True)
