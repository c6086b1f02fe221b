"""Engines to ask and a short way to ask them."""

import json
from collections.abc import Callable
from typing import Any

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
