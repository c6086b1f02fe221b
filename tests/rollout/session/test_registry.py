"""Sessions that nobody uses any more are closed, by the loop's clock; what is in use stays."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
async def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Any]:
    """`await later(seconds)`: the loop's clock stands that much later, and its timers have run."""
    loop = asyncio.get_running_loop()
    ahead = 0.0
    real = loop.time

    async def jump(seconds: float) -> None:
        nonlocal ahead
        ahead += seconds
        for _ in range(2):
            await asyncio.sleep(0)

    monkeypatch.setattr(loop, "time", lambda: real() + ahead)
    return jump


async def test_an_abandoned_session_is_closed_and_its_id_says_why(opened: Any, user: Any, later: Any) -> None:
    sessions = await opened(session_idle_timeout=1000)
    await sessions.say(user("one"))
    await later(900)
    assert sessions.server.sessions_open == 1
    await later(200)
    assert sessions.server.sessions_open == 0
    response = await sessions.chat(user("one"))
    assert response.status_code == 404
    assert "sessions close after 1000 s without a request" in response.json()["error"]


async def test_each_request_counts_as_use(opened: Any, user: Any, later: Any) -> None:
    sessions = await opened(session_idle_timeout=1000)
    for ask in (sessions.show, lambda: sessions.chat(user("one")), lambda: sessions.client.get(sessions.url + "/x")):
        await later(800)
        await ask()
    await later(800)
    assert sessions.server.sessions_open == 1
    await later(400)
    assert sessions.server.sessions_open == 0


async def test_a_session_whose_engine_is_slow_is_not_abandoned(opened: Any, user: Any, later: Any) -> None:
    sessions = await opened(session_idle_timeout=1000, request_timeout=1_000_000)
    hold = sessions.engine.hold()
    asked = asyncio.create_task(sessions.chat(user("one")))
    await hold.arrival()
    await later(5000)
    assert sessions.server.sessions_open == 1
    hold.released.set()
    assert (await asked).status_code == 200
    await later(900)
    assert sessions.server.sessions_open == 1
    await later(5000)
    assert sessions.server.sessions_open == 0


async def test_one_that_expires_takes_no_other_along(opened: Any, later: Any) -> None:
    sessions = await opened(session_idle_timeout=1000)
    await later(600)
    other = (await sessions.client.post("/sessions")).json()["session_id"]
    await later(600)
    assert (await sessions.client.get(sessions.url)).status_code == 404
    assert (await sessions.client.get(f"/sessions/{other}")).status_code == 200
    await later(1200)
    assert sessions.server.sessions_open == 0


async def test_one_that_is_used_keeps_no_idle_one_open(opened: Any, later: Any) -> None:
    sessions = await opened(session_idle_timeout=1000)
    await sessions.client.post("/sessions")
    await later(800)
    await sessions.show()
    await later(300)
    assert sessions.server.sessions_open == 1


async def test_without_a_timeout_a_session_stays(opened: Any, later: Any) -> None:
    sessions = await opened()
    await later(1e9)
    assert sessions.server.sessions_open == 1
