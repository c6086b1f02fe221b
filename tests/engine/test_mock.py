"""The respx router serves sync and async clients alike and is strict about other hosts."""

from collections.abc import Callable

import httpx
import pytest
import respx

from miles_sim.engine.engine import Engine
from miles_sim.engine.mock import engine_router

BODY = {"messages": [{"role": "user", "content": "hi"}]}


def test_a_sync_client_is_answered(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine()
    with engine_router(engine, "http://engine:30000"):
        answer = httpx.post("http://engine:30000/v1/chat/completions", json=BODY)
        health = httpx.get("http://engine:30000/health")
    assert answer.json()["id"] == engine.generations[0].id
    assert (health.status_code, health.content) == (200, b"")


async def test_an_async_client_is_answered_within_a_running_loop(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine()
    with engine_router(engine):
        async with httpx.AsyncClient() as client:
            answer = await client.post("http://engine/v1/chat/completions", json=BODY)
    assert answer.json()["id"] == engine.generations[0].id


def test_a_request_to_another_host_is_an_error(make_engine: Callable[..., Engine]) -> None:
    with engine_router(make_engine()), pytest.raises(respx.models.AllMockedAssertionError):
        httpx.get("http://elsewhere/health")


def test_a_router_that_nobody_calls_is_no_error(make_engine: Callable[..., Engine]) -> None:
    with engine_router(make_engine()):
        pass
