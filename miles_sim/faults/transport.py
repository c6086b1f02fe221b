"""Strikes carried out in this process: an httpx transport between two parts of a play."""

import asyncio
from collections.abc import AsyncIterator, Container, Coroutine
from dataclasses import replace
from typing import Any, NoReturn, Protocol

import httpx

from miles_sim import messages
from miles_sim.faults.injector import THROUGH, Injector, Meeting
from miles_sim.faults.lives import Lives
from miles_sim.faults.locate import OPENS, edge_of
from miles_sim.faults.made import names_of
from miles_sim.faults.place import Edge
from miles_sim.faults.strike import Answer, Asked, CannotStrike, Strike
from miles_sim.messages import encoded, goal_at, goal_of, header_items

_DROPPED = frozenset({"content-length", "content-encoding", "transfer-encoding"})
"""Response headers that belong to the connection, not to the body that was read."""


Waiting = dict[tuple[int, str], list["asyncio.Future[httpx.Response]"]]
"""What an agent waits for, by rollout and step: more than one where it asks twice at once."""
_TURNS = 100
"""Turns of the event loop within which a cancellation reaches whoever waits."""


class Others(Protocol):
    """Those who take part in a play without being asked over HTTP."""

    def cancel(self, rollout: int) -> bool:
        """Cancel the task that runs a rollout; False where it cannot be."""
        ...

    async def after(self, rollout: int, moment: str) -> None:
        """The driver's request of that name has been answered, and it was not told yet."""
        ...


class FaultTransport(httpx.AsyncBaseTransport):
    """Hands requests to `inner`, less what `injector` strikes.

    Time is virtual: who waits for what never comes gets `httpx.ReadTimeout` at once, if the request has a read
    timeout; else it waits until it is cancelled. `edges`: those that are struck here, None for all that pass.
    `agents`: what agents wait for, in common with the other transports of a play. `inner` stays the caller's to close.
    """

    def __init__(
        self,
        inner: httpx.AsyncBaseTransport,
        injector: Injector,
        lives: Lives,
        others: Others,
        *,
        edges: Container[Edge] | None = None,
        agents: Waiting | None = None,
    ) -> None:
        self._inner = inner
        self._injector = injector
        self._lives = lives
        self._others = others
        self._edges = edges
        self._agents: Waiting = {} if agents is None else agents

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = goal_of(request).raw_path.decode()
        edge = edge_of(path)
        if not self._injector.minds(edge) or (self._edges is not None and edge not in self._edges):
            return await self._inner.handle_async_request(request)
        headers = tuple(header_items(request)) if path == OPENS else ()  # of others nobody reads them so soon
        asked = Asked(request.method, path, headers, await request.aread())
        meeting = self._injector.meet(asked)
        if meeting is None:
            return await self._inner.handle_async_request(request)
        if meeting.entry is None and self._passes(meeting):
            exchange = self._inner.handle_async_request(request)
        else:
            whole = replace(asked, headers=tuple(header_items(request)))
            exchange = self._exchange(meeting, whole, request)
        if meeting.edge == "session" and self._injector.hangs_up:
            return await self._hung_on(meeting, exchange, request)
        return await exchange

    def _passes(self, meeting: Meeting) -> bool:
        """It goes through unread."""
        if self._injector.reads(meeting.edge):
            return False
        return meeting.edge == "session" or (meeting.edge == "engine" and not self._lives.dead)

    async def _hung_on(
        self, meeting: Meeting, exchange: Coroutine[Any, Any, httpx.Response], request: httpx.Request
    ) -> httpx.Response:
        """As `exchange`, but for an agent that leaves meanwhile: its client's patience has ended."""
        key = (meeting.place.rollout, meeting.place.step)
        task = asyncio.ensure_future(exchange)
        self._agents.setdefault(key, []).append(task)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            self._agents[key].remove(task)
        if task.cancelled():
            raise httpx.ReadTimeout("", request=request)
        return task.result()

    async def _exchange(self, meeting: Meeting, asked: Asked, request: httpx.Request) -> httpx.Response:
        strike = meeting.strike
        await self._befall(strike, "before", request)
        if meeting.edge == "engine" and self._lives.dead:
            self._injector.dead(meeting)
            raise httpx.ConnectError("all connection attempts failed", request=request)
        if strike.ending == "refused":
            raise httpx.ConnectError("all connection attempts failed", request=request)
        answers = await self._delivered(meeting, asked, request)
        self._injector.answered(meeting, answers)
        await self._befall(strike, "after", request)
        changed = self._changed(meeting, answers, asked)
        if meeting.entry is not None and meeting.entry.cannot is not None:
            strike = THROUGH
        if strike.leaves is not None:
            await self._leave(meeting, answers)
            if changed is None and meeting.entry is not None and meeting.entry.cannot is not None:
                strike, answers = THROUGH, [await self._deliver(request)]
                self._injector.answered(meeting, answers)
                changed = answers[-1]
        if meeting.edge == "driver" and strike.ending == "whole":  # else who asked will ask again
            await self._others.after(meeting.place.rollout, meeting.place.step)
        if changed is not None and strike.ending == "whole":
            self._injector.handed_over(meeting, changed, answers)
        return await _ended(strike, changed, request)

    async def _befall(self, strike: Strike, moment: str, request: httpx.Request) -> None:
        for life in (each for each in strike.life if each.moment == moment):
            await self._lives.befall(life, request)

    async def _leave(self, meeting: Meeting, answers: list[Answer]) -> None:
        """Whoever is to leave does. Returns where nobody can be made to, and where somebody waits all the same: a
        driver that is cancelled may first see to the end what it has begun."""
        key = (meeting.place.rollout, meeting.place.step)
        if meeting.strike.leaves == "rollout":
            gone = self._others.cancel(meeting.place.rollout)
        else:
            cancelled = [task.cancel() for task in self._agents.get(key, [])]
            gone = any(cancelled)
        if gone and meeting.entry is not None:
            meeting.entry.lost += names_of(answers)
        elif meeting.entry is not None:
            meeting.entry.cannot = f"the {meeting.strike.leaves} cannot be made to leave here"
        for _ in range(_TURNS if gone else 0):
            await asyncio.sleep(0)

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
            entry.lost += names_of(answers[:-1] if whole else answers)
        return changed

    async def _delivered(self, meeting: Meeting, asked: Asked, request: httpx.Request) -> list[Answer]:
        """The answers to all copies. Who asks may leave between two of them: what was answered until then is lost."""
        strike = meeting.strike
        sent = strike.ask(asked)
        if sent is not asked:
            request = _rewritten(request, sent)
        if strike.at_once:
            return list(await asyncio.gather(*(self._deliver(request) for _ in range(strike.deliveries))))
        answers: list[Answer] = []
        try:
            for _ in range(strike.deliveries):
                answers.append(await self._deliver(request))
        except BaseException:
            if meeting.entry is not None:
                meeting.entry.lost += names_of(answers)
            raise
        return answers

    async def _deliver(self, request: httpx.Request) -> Answer:
        response = await self._inner.handle_async_request(request)
        try:
            body = await response.aread()
        finally:
            await response.aclose()
        kept = tuple((name, value) for name, value in header_items(response) if name not in _DROPPED)
        return Answer(response.status_code, body, kept)


def _rewritten(request: httpx.Request, asked: Asked) -> httpx.Request:
    """The request in whose place `asked` is sent."""
    headers = [(name, value) for name, value in asked.headers if name.lower() != "content-length"]
    goal, path = goal_of(request), asked.path.encode()
    if goal.raw_path != path:
        goal = goal_at(request.url.copy_with(raw_path=path))
    return messages.request(asked.method, goal, encoded(headers), asked.body, request.extensions)


async def _ended(strike: Strike, answer: Answer | None, request: httpx.Request) -> httpx.Response:
    if answer is None or (strike.ending != "whole" and not strike.headers):
        await _broken(strike, request, begun=False)
    cut = strike.arriving(len(answer.body))
    headers = encoded([*answer.headers, ("content-length", str(len(answer.body)))])
    if strike.ending == "whole" and strike.chunk_bytes is None:
        return messages.response(answer.status, headers, answer.body, request)
    body = _Body(strike, answer.body[:cut], request)
    kind = httpx.Response if any(name.lower() == b"content-encoding" for name, _ in headers) else _Slow
    return kind(answer.status, headers=headers, stream=body, request=request)


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
        size = self._size
        for start in range(0, len(self._body), size):
            yield self._body[start : start + size]
            await asyncio.sleep(0)
        if self._strike.ending != "whole":
            await _broken(self._strike, self._request, begun=True)

    async def whole(self) -> bytes:
        """All of it, or the ending, at once: of many pieces none says more than the first hundred."""
        for _ in range(min(-(-len(self._body) // self._size), _TURNS)):
            await asyncio.sleep(0)
        if self._strike.ending != "whole":
            await _broken(self._strike, self._request, begun=True)
        return self._body

    @property
    def _size(self) -> int:
        return self._strike.chunk_bytes or len(self._body) or 1


class _Slow(httpx.Response):
    """One whose body comes in pieces, or not to its end; who reads it need not look at each."""

    stream: _Body
    _whole: bytes | None = None

    @property
    def content(self) -> bytes:
        return super().content if self._whole is None else self._whole

    async def aread(self) -> bytes:
        if self._whole is None:
            self._whole = await self.stream.whole()
            await self.aclose()
        return self._whole
