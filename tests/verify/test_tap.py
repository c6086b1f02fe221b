"""The tap lets all through as it is, notes what was generated, and keeps back what it is told to."""

import asyncio
from typing import Any

import httpx
import orjson
import pytest

from miles_sim.engine.engine import Engine
from miles_sim.engine.settings import EngineSettings
from miles_sim.verify.tap import Exchange, Tap

CHAT = "/v1/chat/completions"


def chat(text: str, **fields: Any) -> dict[str, Any]:
    asked = {"messages": [{"role": "user", "content": text}], "max_tokens": 5, "seed": 3}
    return {**asked, "logprobs": True, "return_meta_info": True, **fields}


def client(tap: Tap) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(tap), base_url="http://engine")


async def test_answers_go_through_to_the_byte() -> None:
    plain, tapped = (Engine(EngineSettings(), seed=1) for _ in range(2))
    tap = Tap(tapped.app)
    body = orjson.dumps(chat("hello"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(plain.app), base_url="http://engine") as direct:
        expected = await direct.post(CHAT, content=body)
    async with client(tap) as through:
        found = await through.post(CHAT, content=body)
        assert (await through.get("/health")).status_code == 200
    assert found.content == expected.content
    (exchange,) = tap.exchanges
    assert (exchange.path, exchange.asked, exchange.answered) == (CHAT, body, found.content)


@pytest.mark.parametrize(
    ("path", "body"),
    [(CHAT, chat("hello")), ("/generate", {"input_ids": [1, 2], "sampling_params": {"sampling_seed": 3}})],
)
async def test_a_generation_is_known_by_its_id_and_its_seed(path: str, body: dict[str, Any]) -> None:
    engine = Engine(EngineSettings(), seed=1)
    tap = Tap(engine.app)
    async with client(tap) as asking:
        await asking.post(path, json=body)
    (generation,) = engine.generations
    assert list(tap.by_id) == [generation.id]
    assert tap.by_id[generation.id].sampling_seed == 3


@pytest.mark.parametrize("answered", [b"", b"no json", b"[1]", b'{"error": {}}', b'{"choices": [], "id": 5}'])
def test_what_is_no_generation_has_no_id(answered: bytes) -> None:
    exchanges = [Exchange(path, b"{}", answered) for path in (CHAT, "/generate")]
    assert [exchange.response_id for exchange in exchanges] == [None, None]
    assert [exchange.sampling_seed for exchange in exchanges] == [None, None]


async def test_an_answer_is_kept_back_until_it_is_released() -> None:
    tap = Tap(Engine(EngineSettings(), seed=1).app, held=["late"])
    async with client(tap) as asking:
        assert (await asking.post(CHAT, json=chat("at once"))).status_code == 200
        late = asyncio.ensure_future(asking.post(CHAT, json=chat("later [late]")))
        await tap.reached("late", 3)
        assert (tap.holding, late.done()) == (1, False)
        tap.release()
        assert (await late).status_code == 200
    assert tap.holding == 0


async def test_a_client_that_leaves_is_held_no_longer() -> None:
    tap = Tap(Engine(EngineSettings(), seed=1).app, held=["late"])
    async with client(tap) as asking:
        late = asyncio.ensure_future(asking.post(CHAT, json=chat("later [late]")))
        await tap.reached("late", 3)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
    assert tap.holding == 0
