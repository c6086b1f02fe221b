"""Engines to ask and a short way to ask them."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from miles_sim.engine.engine import Engine
from miles_sim.engine.flight import at_once
from miles_sim.engine.settings import EngineSettings

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def make_engine() -> Callable[..., Engine]:
    """`make_engine(seed=…, **settings)`."""

    def make(*, seed: int = 0, **settings: Any) -> Engine:
        return Engine(EngineSettings.model_validate(settings), seed=seed)

    return make


@pytest.fixture
def ask() -> Ask:
    """`ask(engine, "text", **fields)` gives the chat completion, whole; `messages=` replaces the text."""

    def chat(engine: Engine, text: str = "hello", **fields: Any) -> dict[str, Any]:
        body = {"messages": [{"role": "user", "content": text}], "return_meta_info": True, "logprobs": True, **fields}
        answer: dict[str, Any] = json.loads(at_once(engine.chat(json.dumps(body).encode())))
        return answer

    return chat


@dataclass(frozen=True)
class Answer:
    """One HTTP answer."""

    status: int
    kind: str
    """Content type."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def events(self) -> list[Any]:
        """The documents of a stream; its `[DONE]` must be there and stand last."""
        lines = [line for line in self.text.split("\n\n") if line]
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line.partition("data: ")[2]) for line in lines[:-1]]


Post = Callable[..., Answer]


@pytest.fixture
def post() -> Post:
    """`post(engine, "/generate", field=…)` in process; `headers=` beside the fields; a broken stream raises."""

    async def sent(engine: Engine, path: str, headers: dict[str, str] | None, fields: dict[str, Any]) -> Answer:
        transport = httpx.ASGITransport(app=engine.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            answer = await client.post(path, json=fields, headers=headers)
            return Answer(answer.status_code, answer.headers.get("content-type", ""), answer.content)

    def asked(engine: Engine, path: str, *, headers: dict[str, str] | None = None, **fields: Any) -> Answer:
        return asyncio.run(sent(engine, path, headers, fields))

    return asked
