"""One batch of requests, asked in order, 64 at a time and in another order, gets the same bytes for each request."""

import asyncio
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import httpx
import pytest

from miles_sim.engine import profiles
from miles_sim.engine.engine import Engine
from miles_sim.transport import LocalNetwork, serve

Make = Callable[..., Engine]
Asked = tuple[str, dict[str, Any]]

RULES = [
    {"contains": "look", "reply": {"tokens": 4, "tool_calls": [{"name": "look", "arguments": {"at": "x"}}]}},
    {"contains": "break", "reply": {"tokens": 9, "abort_after": 5}},
]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
COUNT = 72
SETTINGS: dict[str, Any] = {"rules": RULES, "speculative": {"algorithm": "EAGLE"}, "experts": {"layers": 2, "topk": 2}}


def batch(seed: int, count: int) -> list[Asked]:
    """Requests that share a system message and beginnings of prompts; no two ask the same thing."""
    random = Random(seed)
    return [random.choice((_chat, _chat, _generate, _completion))(random, number) for number in range(count)]


def _text(random: Random, number: int) -> str:
    return f"{random.choice(('hello', 'look', 'break', 'go on'))} {number} {'word ' * random.randrange(20)}"


def _chat(random: Random, number: int) -> Asked:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": _text(random, number)}]
    body: dict[str, Any] = {"messages": messages, "logprobs": True, "temperature": random.choice((0, 1.0))}
    if random.random() < 0.3:
        body["tools"] = TOOLS
    if random.random() < 0.3:
        return "/v1/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}}
    body |= {"n": random.choice((1, 1, 3)), "top_logprobs": random.randrange(3), "max_tokens": random.randrange(1, 40)}
    return "/v1/chat/completions", {**body, "return_meta_info": True, "return_routed_experts": random.random() < 0.3}


def _generate(random: Random, number: int) -> Asked:
    ids = [300 + number % 7, 400 + number // 7 % 100, *(random.randrange(300, 800) for _ in range(12)), 256 + number]
    body: dict[str, Any] = {"input_ids": ids, "return_logprob": True, "stream": random.random() < 0.3}
    if random.random() < 0.3:
        body |= {"logprob_start_len": 0, "top_logprobs_num": 2}
    return "/generate", {**body, "sampling_params": {"max_new_tokens": random.randrange(1, 40)}}


def _completion(random: Random, number: int) -> Asked:
    return "/v1/completions", {"model": "sim", "prompt": _text(random, number), "logprobs": 2, "max_tokens": 12}


async def replies(
    client: httpx.AsyncClient, requests: Sequence[Asked], order: Sequence[int], width: int
) -> list[tuple[int, bytes]]:
    """Status and bytes by request, whatever the order; `width` at a time."""
    places, found = asyncio.Semaphore(width), [(0, b"")] * len(requests)

    async def ask(number: int) -> None:
        path, body = requests[number]
        async with places:
            answer = await client.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
            found[number] = answer.status_code, answer.content

    await asyncio.gather(*map(ask, order))
    return found


async def inside(
    engine: Engine, requests: Sequence[Asked], order: Sequence[int], width: int
) -> list[tuple[int, bytes]]:
    network = LocalNetwork()
    network.mount("engine", engine.app)
    async with httpx.AsyncClient(transport=network, base_url="http://engine") as client:
        return await replies(client, requests, order, width)


def shuffled(count: int, seed: int) -> list[int]:
    return Random(seed).sample(range(count), count)


@pytest.mark.parametrize(
    ("profile", "clock"), [*((name, "off") for name in profiles.names()), ("sglang-0.5.16", "virtual")]
)
async def test_in_order_at_once_and_reordered_give_the_same_bytes(make_engine: Make, profile: str, clock: str) -> None:
    def engine() -> Engine:
        return make_engine(seed=11, profile=profile, latency={"clock": clock}, **SETTINGS)

    requests = batch(seed=len(profile) * len(clock), count=COUNT)
    first = engine()
    expected = await inside(first, requests, range(COUNT), 1)
    assert await inside(engine(), requests, range(COUNT), 64) == expected
    assert await inside(engine(), requests, shuffled(COUNT, 1), 1) == expected
    last = engine()
    assert await inside(last, requests, shuffled(COUNT, 2), 64) == expected
    assert {status for status, _ in expected} <= {200, 501}
    assert sum(status == 200 for status, _ in expected) > 0.8 * COUNT
    ids = sorted(generation.id for generation in first.generations)
    assert ids == sorted(generation.id for generation in last.generations)
    assert len(set(ids)) == len(ids)


async def test_the_same_over_sockets(make_engine: Make) -> None:
    requests = batch(seed=3, count=COUNT)
    expected = await inside(make_engine(seed=11, **SETTINGS), requests, range(COUNT), 1)
    limits = httpx.Limits(max_connections=64)
    async with (
        serve(make_engine(seed=11, **SETTINGS).app) as url,
        httpx.AsyncClient(base_url=url, limits=limits, trust_env=False, timeout=60) as client,
    ):
        assert await replies(client, requests, shuffled(COUNT, 4), 64) == expected
