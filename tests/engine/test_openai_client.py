"""The `openai` client reads the engine over a socket, sync and async: replies, tools, streams, completions."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
import openai
import pytest

from miles_sim.engine import profiles
from miles_sim.engine.engine import Engine
from miles_sim.engine.settings import EngineSettings
from miles_sim.transport import serve

T = TypeVar("T")

LOOK: Any = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
CALL = {"contains": "call", "reply": {"tokens": 0, "tool_calls": [{"name": "look", "arguments": {"at": "x"}}]}}
USER: Any = [{"role": "user", "content": "hi"}]
CALLING: Any = [{"role": "user", "content": "call"}]


def served(settings: dict[str, Any], talk: Callable[[Engine, str], Awaitable[T]]) -> tuple[Engine, T]:
    """An engine on a socket, and what came of the talk with it."""
    engine = Engine(EngineSettings.model_validate({"rules": [CALL], **settings}), seed=0)

    async def run() -> T:
        async with serve(engine.app) as url:
            return await talk(engine, url)

    return engine, asyncio.run(run())


@pytest.mark.parametrize("profile", profiles.names())
def test_the_sync_client_reads_all(profile: str) -> None:
    served({"profile": profile}, lambda engine, url: asyncio.to_thread(read_all, engine, f"{url}/v1"))


def read_all(engine: Engine, url: str) -> None:
    with openai.OpenAI(base_url=url, api_key="-", max_retries=0) as client:
        whole = client.chat.completions.create(model="m", messages=USER, n=2, logprobs=True, top_logprobs=2)
        assert [choice.message.content for choice in whole.choices] == [
            engine.tokenizer.decode(g.output_ids[:-1]) for g in engine.generations
        ]
        assert whole.choices[0].logprobs
        assert whole.choices[0].logprobs.content
        assert len(whole.choices[0].logprobs.content) == len(engine.generations[0].output_ids)
        assert whole.usage
        assert whole.usage.completion_tokens == sum(len(g.output_ids) for g in engine.generations)

        called = client.chat.completions.create(model="m", messages=CALLING, tools=LOOK).choices[0]
        assert called.finish_reason == "tool_calls"
        assert called.message.tool_calls
        assert json.loads(called.message.tool_calls[0].function.arguments) == {"at": "x"}  # type: ignore[union-attr]

        streamed = client.chat.completions.create(
            model="m", messages=USER, stream=True, stream_options={"include_usage": True}
        )
        pieces = list(streamed)
        text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
        truth = engine.generations[-1]
        assert text == engine.tokenizer.decode(truth.output_ids[:-1])
        assert pieces[-1].usage
        assert pieces[-1].usage.completion_tokens == len(truth.output_ids)

        done = client.completions.create(model="m", prompt="go", logprobs=1, n=2, max_tokens=4)
        assert len(done.choices) == 2
        assert done.choices[0].logprobs
        assert len(done.choices[0].logprobs.tokens or ()) == 4
        parts = list(client.completions.create(model="m", prompt="go", stream=True, max_tokens=4))
        last = engine.tokenizer.decode(engine.generations[-1].output_ids)
        assert "".join(part.choices[0].text for part in parts) == last

        with pytest.raises(openai.BadRequestError, match="top_p must be in"):
            client.chat.completions.create(model="m", messages=USER, top_p=7)


@pytest.mark.parametrize("profile", profiles.names())
def test_the_async_client_streams_calls_side_by_side(profile: str) -> None:
    async def talk(engine: Engine, url: str) -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0) as client:

            async def arguments(seed: int) -> str:
                streamed = await client.chat.completions.create(
                    model="m", messages=CALLING, tools=LOOK, stream=True, seed=seed
                )
                told = ""
                async for piece in streamed:
                    for call in piece.choices[0].delta.tool_calls or []:
                        told += call.function.arguments or "" if call.function else ""
                return told

            return await asyncio.gather(*(arguments(seed) for seed in range(6)))

    engine, told = served({"profile": profile}, talk)
    assert [json.loads(arguments) for arguments in told] == [{"at": "x"}] * 6
    assert len(engine.generations) == 6


def test_a_cut_stream_reaches_a_client_as_a_broken_connection() -> None:
    async def talk(engine: Engine, url: str) -> str:
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.RemoteProtocolError):
                await client.post(f"{url}/v1/chat/completions", json={"messages": USER, "stream": True})
        return "cut"

    reply = {"tokens": 9, "abort_after": 3}
    assert served({"profile": "sglang-0.5.10", "default_reply": reply}, talk)[1] == "cut"
