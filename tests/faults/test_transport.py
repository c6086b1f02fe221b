"""Strikes carried out in this process: what who asked gets, and what the other side hears."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from miles_sim.faults.injector import Injector, Meeting
from miles_sim.faults.journal import Entry, Journal
from miles_sim.faults.lives import Lives
from miles_sim.faults.place import Edge, Place
from miles_sim.faults.strike import Answer, Asked, CannotStrike, Life, Strike
from miles_sim.faults.transport import FaultTransport

BODY = b'{"id":"g1","choices":[]}'
STALL = {"timeout": {"read": 600.0}}


class Struck(Injector):
    """Strikes everything in one way."""

    def __init__(self, strike: Strike, edge: Edge = "engine") -> None:
        super().__init__((), seed=0, locate=lambda asked: None, journal=Journal())
        self.entry = Entry(None, Place(0, 0, "1", 0))  # type: ignore[arg-type]
        self._meeting = Meeting(edge, Place(0, 0, "1", 0), strike, self.entry)

    def minds(self, edge: Edge | None) -> bool:
        return True

    def meet(self, asked: Asked) -> Meeting | None:
        return self._meeting


class Nobody:
    def __init__(self, cancel: Callable[[], bool] = lambda: False) -> None:
        self.moments: list[str] = []
        self._cancel = cancel

    def cancel(self, rollout: int) -> bool:
        return self._cancel()

    async def after(self, rollout: int, moment: str) -> None:
        self.moments.append(moment)


class Play:
    """One transport before an engine that answers each request alike, and hears them all."""

    def __init__(self, strike: Strike, edge: Edge = "engine", others: Nobody | None = None) -> None:
        self.heard: list[tuple[str, str, bytes]] = []
        self.injector = Struck(strike, edge)
        inner = httpx.MockTransport(self._hear)
        self.transport = FaultTransport(inner, self.injector, Lives(inner, "http://engine"), others or Nobody())

    def _hear(self, request: httpx.Request) -> httpx.Response:
        self.heard.append((request.method, request.url.path, request.content))
        return httpx.Response(200, content=BODY, headers={"x-own": "1"})

    async def ask(self, **extensions: Any) -> httpx.Response:
        request = httpx.Request("POST", "http://engine/generate", content=b"asked", extensions=extensions or STALL)
        response = await self.transport.handle_async_request(request)
        await response.aread()
        return response

    @property
    def entry(self) -> Entry:
        return self.injector.entry


async def test_nothing_changes_by_default() -> None:
    play = Play(Strike())
    response = await play.ask()
    assert (response.status_code, response.content, response.headers["x-own"]) == (200, BODY, "1")
    assert play.heard == [("POST", "/generate", b"asked")]
    assert play.entry.lost == []


async def test_what_stands_in_reaches_nobody() -> None:
    play = Play(Strike(deliveries=0, instead=Answer(503, b"no")))
    response = await play.ask()
    assert (response.status_code, response.content) == (503, b"no")
    assert play.heard == []


@pytest.mark.parametrize("at_once", [False, True])
async def test_copies_are_all_heard_and_the_last_answer_counts(at_once: bool) -> None:
    play = Play(Strike(deliveries=2, at_once=at_once))
    assert (await play.ask()).content == BODY
    assert len(play.heard) == 2
    assert play.entry.lost == ["g1"]


async def test_request_and_answer_may_be_changed_and_the_generation_is_lost() -> None:
    play = Play(
        Strike(
            ask=lambda asked: Asked(asked.method, asked.path, asked.headers, b"other"),
            reply=lambda answer: Answer(answer.status, b"changed", answer.headers),
        )
    )
    assert (await play.ask()).content == b"changed"
    assert play.heard[0][2] == b"other"
    assert play.entry.lost == ["g1"]


async def test_what_cannot_be_changed_is_handed_over_whole_and_the_reason_kept() -> None:
    def cannot(answer: Answer) -> Answer:
        raise CannotStrike("there is no such field")

    play = Play(Strike(reply=cannot, ending="reset"))
    assert (await play.ask()).content == BODY
    assert play.entry.cannot == "there is no such field"


@pytest.mark.parametrize(
    ("strike", "error", "heard"),
    [
        (Strike(deliveries=0, ending="refused"), httpx.ConnectError, 0),
        (Strike(deliveries=0, ending="reset"), httpx.ReadError, 0),
        (Strike(ending="reset"), httpx.ReadError, 1),
        (Strike(ending="reset", headers=True), httpx.ReadError, 1),
        (Strike(ending="closed"), httpx.RemoteProtocolError, 1),
        (Strike(ending="closed", headers=True, body_bytes=3), httpx.RemoteProtocolError, 1),
        (Strike(ending="stalled"), httpx.ReadTimeout, 1),
        (Strike(ending="stalled", headers=True, body_bytes=3), httpx.ReadTimeout, 1),
    ],
)
async def test_each_ending_is_the_error_that_a_socket_would_give(
    strike: Strike, error: type[httpx.TransportError], heard: int
) -> None:
    play = Play(strike)
    with pytest.raises(error):
        await play.ask()
    assert len(play.heard) == heard
    assert play.entry.lost == ["g1"] * heard


async def test_who_waits_without_a_timeout_waits_until_it_is_cancelled() -> None:
    task = asyncio.ensure_future(Play(Strike(ending="stalled")).ask(timeout={"read": None}))
    await asyncio.wait([task], timeout=0.01)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_body_may_come_in_pieces() -> None:
    play = Play(Strike(chunk_bytes=5))
    request = httpx.Request("POST", "http://engine/generate", content=b"")
    response = await play.transport.handle_async_request(request)
    pieces = [piece async for piece in response.aiter_raw()]
    assert b"".join(pieces) == BODY
    assert {len(piece) for piece in pieces[:-1]} == {5}


@pytest.mark.parametrize(
    ("operation", "paths"),
    [
        ("flush_cache", ["/flush_cache"]),
        ("abort_all", ["/abort_request"]),
        ("restart", ["/abort_request", "/flush_cache"]),
        ("update_weights", ["/update_weight_version"]),
    ],
)
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_what_befalls_the_engine_goes_through_its_own_endpoints(
    operation: Any, paths: list[str], moment: Any
) -> None:
    play = Play(Strike(life=(Life(operation, moment),)))
    await play.ask()
    expected = [*paths, "/generate"] if moment == "before" else ["/generate", *paths]
    assert [path for _, path, _ in play.heard] == expected


async def test_a_dead_engine_refuses_every_connection_until_it_is_revived() -> None:
    play = Play(Strike(life=(Life("die"),)))
    with pytest.raises(httpx.ConnectError):
        await play.ask()
    assert play.heard == []


async def test_a_session_is_forgotten_before_the_request_comes_to_it() -> None:
    play = Play(Strike(life=(Life("forget"),)), edge="session")
    request = httpx.Request("POST", "http://server/sessions/abc/v1/chat/completions", content=b"", extensions=STALL)
    await play.transport.handle_async_request(request)
    assert [(method, path) for method, path, _ in play.heard] == [
        ("DELETE", "/sessions/abc"),
        ("POST", "/sessions/abc/v1/chat/completions"),
    ]


async def test_a_rollout_that_is_cancelled_is_answered_no_more() -> None:
    left: list[int] = []

    def cancel() -> bool:
        left.append(1)
        return True

    play = Play(Strike(leaves="rollout"), others=Nobody(cancel))
    assert (await play.ask()).content == BODY  # who sees to the end what it began is answered all the same
    assert left == [1]
    assert play.entry.lost == ["g1"]


async def test_who_cannot_be_made_to_leave_is_served_and_the_reason_kept() -> None:
    play = Play(Strike(deliveries=0, leaves="rollout"))
    assert (await play.ask()).content == BODY
    assert play.entry.cannot == "the rollout cannot be made to leave here"


async def test_the_others_hear_of_the_drivers_answers_before_the_driver() -> None:
    others = Nobody()
    await Play(Strike(), edge="driver", others=others).ask()
    assert others.moments == ["1"]


async def test_only_the_edges_that_are_asked_for_are_struck() -> None:
    play = Play(Strike(deliveries=0, ending="refused"))
    there = FaultTransport(
        httpx.MockTransport(play._hear),
        play.injector,
        Lives(httpx.MockTransport(play._hear), "http://engine"),
        Nobody(),
        edges=("driver",),
    )
    response = await there.handle_async_request(httpx.Request("POST", "http://engine/generate", content=b"{}"))
    assert response.status_code == 200


async def test_who_opens_a_session_is_told_with_its_headers() -> None:
    met: list[Asked] = []

    class Listening(Injector):
        def minds(self, edge: Edge | None) -> bool:
            return True

        def meet(self, asked: Asked) -> Meeting | None:
            met.append(asked)
            return None

    inner = httpx.MockTransport(lambda request: httpx.Response(200))
    injector = Listening((), seed=0, locate=lambda asked: None, journal=Journal())
    transport = FaultTransport(inner, injector, Lives(inner, "http://engine"), Nobody())
    for path in ("/sessions", "/generate"):
        await transport.handle_async_request(httpx.Request("POST", f"http://s{path}", headers={"x-who": "3"}))
    assert [("x-who", "3") in asked.headers for asked in met] == [True, False]
