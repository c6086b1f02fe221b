"""Random requests against engines of every profile: none may crash an engine, and none may hang it."""

import asyncio
import signal
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx

from miles_sim.bench.bodies import Asked, request
from miles_sim.engine import profiles
from miles_sim.engine.engine import Engine
from miles_sim.engine.settings import EngineSettings
from miles_sim.reply import Reply, ReplyRule, ToolCall

ENGINE_LIFE = 100
"""Requests after which an engine is replaced, so that one that was bent does not hide what others would show."""
PATIENCE = 10.0
"""Seconds without an answer that pass for a hang."""


class BusyError(RuntimeError):
    """An engine that computes and computes."""


@dataclass(frozen=True)
class Fault:
    """One request that was not answered as it should be."""

    profile: str
    asked: Asked
    what: str

    def __str__(self) -> str:
        return f"{self.profile}: {self.asked}\n    {self.what}"


@dataclass(frozen=True)
class Fuzzed:
    """What became of all requests. A 500 that is counted is the release's own: it falls over the same request."""

    examples: int
    statuses: dict[int, int]
    faults: tuple[Fault, ...]

    def document(self) -> dict[str, Any]:
        told = {str(status): count for status, count in sorted(self.statuses.items())}
        return {"examples": self.examples, "statuses": told, "faults": [str(fault) for fault in self.faults]}


async def fuzz(examples: int, *, seed: int = 0, patience: float = PATIENCE) -> Fuzzed:
    """`examples` requests, by turns to the profiles. Equal seeds send equal requests."""
    random = Random(seed)
    names = profiles.names()
    statuses: Counter[int] = Counter()
    faults: list[Fault] = []
    engines = {name: _engine(name) for name in names}
    for number in range(examples):
        name = names[number % len(names)]
        if number // len(names) % ENGINE_LIFE == 0:
            engines[name] = _engine(name)
        asked = request(random, engines[name].release.routes)
        outcome = await _answer(engines[name], asked, patience)
        if isinstance(outcome, int):
            statuses[outcome] += 1
        else:
            faults.append(Fault(name, asked, outcome))
            engines[name] = _engine(name)
    return Fuzzed(examples, dict(statuses), tuple(faults))


def _engine(profile: str) -> Engine:
    call = ReplyRule(contains="call", reply=Reply(tokens=3, tool_calls=(ToolCall(name="look"),)))
    settings = EngineSettings(profile=profile, context_length=4_096, default_reply=Reply(tokens=12), rules=(call,))
    return Engine(settings, seed=0)


async def _answer(engine: Engine, asked: Asked, patience: float) -> int | str:
    """The status, or what went wrong. What may have paused generation is followed by what lets it go on."""
    transport = httpx.ASGITransport(app=engine.app, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://engine", timeout=None) as client:
        try:
            with _alarm(2 * patience):
                answer = await asyncio.wait_for(_send(client, asked), patience)
            if asked.path.startswith("/pause_generation"):
                await client.post("/continue_generation", json={})
        except asyncio.TimeoutError:
            return f"no answer within {patience:g} s"
        except Exception as error:
            return "".join(traceback.format_exception_only(error)).strip() + _where(error)
    return answer.status_code


async def _send(client: httpx.AsyncClient, asked: Asked) -> httpx.Response:
    headers = {"content-type": asked.content_type} if asked.content_type else {}
    return await client.request(asked.method, asked.path, content=asked.content, headers=headers)


def _where(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f" ({frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name})"


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """`BusyError` in code that never comes back to the event loop; in the main thread, where there are signals."""

    def ring(number: int, frame: object) -> None:
        raise BusyError(f"busy for {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
