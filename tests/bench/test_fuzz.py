"""Random requests: the same for a seed, spread over all that an engine serves, and without a crash or a hang."""

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest

from miles_sim.bench import fuzz as fuzzing
from miles_sim.bench.bodies import Asked, request
from miles_sim.bench.fuzz import fuzz
from miles_sim.engine import profiles
from miles_sim.engine.serving import Serving

ROUTES = {"/flush_cache": ("GET", "POST"), "/abort_request": ("POST",)}


async def test_five_hundred_random_requests_find_neither_a_crash_nor_a_hang() -> None:
    found = await fuzz(500, seed=20)
    assert list(map(str, found.faults)) == []
    assert sum(found.statuses.values()) == 500
    assert {200, 400, 501} <= set(found.statuses)


def test_equal_seeds_send_equal_requests_to_all_endpoints_whole_and_broken() -> None:
    sent = [[request(random, ROUTES) for _ in range(600)] for random in (Random(5), Random(5))]
    assert sent[0] == sent[1]
    paths = Counter(asked.path.partition("?")[0] for asked in sent[0])
    assert set(paths) == {"/v1/chat/completions", "/generate", "/v1/completions", *ROUTES}
    assert {asked.method for asked in sent[0]} >= {"GET", "POST", "PUT"}
    assert len({asked.content for asked in sent[0]}) > 400


async def crashes(*_: Any, **__: Any) -> bytes:
    raise KeyError("spoon")


async def waits(*_: Any, **__: Any) -> bytes:
    await asyncio.Event().wait()
    return b""


async def spins(*_: Any, **__: Any) -> bytes:
    while True:
        pass


@pytest.mark.parametrize(
    ("trouble", "told"),
    [(crashes, "KeyError: 'spoon' (test_fuzz.py:"), (waits, "no answer within 0.02 s"), (spins, "busy for 0.04 s")],
)
async def test_a_crash_and_a_hang_are_reported_with_the_request(
    monkeypatch: pytest.MonkeyPatch, trouble: Any, told: str
) -> None:
    monkeypatch.setattr(Serving, "generate", trouble)
    monkeypatch.setattr(fuzzing, "request", lambda random, routes: Asked("POST", "/generate", b"{}"))
    found = await fuzz(1, patience=0.02)
    (fault,) = found.faults
    assert told in fault.what
    assert "POST /generate (application/json) b'{}'" in str(fault)
    assert found.document()["faults"] == [str(fault)]


async def test_every_profile_gets_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    engine = fuzzing._engine

    def noted(profile: str) -> Any:
        made.append(profile)
        return engine(profile)

    monkeypatch.setattr(fuzzing, "_engine", noted)
    await fuzz(len(profiles.names()), seed=3)
    assert set(made) == set(profiles.names())
