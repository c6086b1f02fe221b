"""Replies of a simulated engine, by route and release, for payload kinds to spoil."""

import asyncio
import json
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any

import httpx
import pytest

from miles_sim.engine.engine import Engine
from miles_sim.engine.experts import Experts
from miles_sim.engine.settings import EngineSettings, Speculative
from miles_sim.faults.catalogue import kind_named
from miles_sim.faults.strike import Answer
from miles_sim.reply import Reply, ToolCall

_TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
_FIELDS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    "calls": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "tools": [_TOOL]}),
    "completion": ("/v1/completions", {"prompt": "hi", "logprobs": 1}),
    "generate": ("/generate", {"text": "hi", "return_logprob": True, "sampling_params": {"max_new_tokens": 200}}),
}


@lru_cache
def _reply(route: str, profile: str = "sglang-0.5.20") -> Answer:
    """A whole reply; weight version 42, speculative decoding, experts where the release tells their rows."""
    path, fields = _FIELDS[route]
    body: dict[str, Any] = {"return_routed_experts": True, **fields}
    if path != "/generate":
        body |= {"max_tokens": 200, "return_meta_info": True, "model": "sim"}
        body.setdefault("logprobs", True)
    calls = (ToolCall(name="look", arguments={}),) if route == "calls" else ()
    engine = Engine(
        EngineSettings(
            profile=profile,
            weight_version="42",
            speculative=Speculative(),
            experts=Experts(layers=2, topk=2, experts=8),
            default_reply=Reply(tokens=6, tool_calls=calls),
        ),
        seed=1,
    )

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=engine.app), base_url="http://e") as client:
            return (await client.post(path, json=body)).raise_for_status()

    found = asyncio.run(ask())
    return Answer(found.status_code, found.content, (("content-type", found.headers["content-type"]),))


def _spoiled(kind: str, answer: Answer, **params: Any) -> Any:
    """The document that the kind makes of a reply; `CannotStrike` where it makes none."""
    known = kind_named(kind)
    strike = known.effect(known.params.model_validate(params), Random(0))
    return json.loads(strike.altered(answer, answer).body)


@pytest.fixture(scope="session")
def reply() -> Callable[..., Answer]:
    """`reply(route, profile)`; routes: `chat`, `calls` (with a tool call), `completion`, `generate`."""
    return _reply


@pytest.fixture(scope="session")
def spoiled() -> Callable[..., Any]:
    """`spoiled(kind, answer, **params)`: the document that comes of it, or `CannotStrike`."""
    return _spoiled
