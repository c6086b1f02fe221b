"""What only a real connection shows: framing, doubled headers, a peer that hangs up."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from miles_sim.rollout.session.server import SessionServer
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.transport import serve


@pytest.fixture
async def server(engine: Any) -> AsyncIterator[SessionServer]:
    """A session server whose engine is behind a socket."""
    async with serve(engine.app) as engine_url:
        server = SessionServer(RolloutSettings(), engine.tokenizer, engine_url)
        yield server
        assert server.requests_open == 0
        await server.aclose()


@pytest.fixture
async def url(server: SessionServer) -> AsyncIterator[str]:
    async with serve(server.app) as base:
        yield base


async def exchange(url: str, head: str, body: bytes = b"", *, hang_up_after: Any = None) -> bytes:
    """One raw HTTP/1.1 request; its raw reply, or nothing for who hangs up first."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = [head, f"host: {host}", "connection: close", f"content-length: {len(body)}", "", ""]
    writer.write("\r\n".join(lines).encode() + body)
    await writer.drain()
    try:
        if hang_up_after is not None:
            await hang_up_after.arrival()
            return b""
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def created(url: str) -> str:
    raw = await exchange(url, "POST /sessions HTTP/1.1")
    session: str = json.loads(raw.partition(b"\r\n\r\n")[2])["session_id"]
    return session


def chat(session: str) -> tuple[str, bytes]:
    body = json.dumps({"messages": [{"role": "user", "content": "ünë"}], "stream": False}).encode()
    return f"POST /sessions/{session}/v1/chat/completions HTTP/1.1", body


async def test_each_header_stands_once_and_the_length_is_the_bodys(url: str, engine: Any) -> None:
    raw = await exchange(url, *chat(await created(url)))
    head, _, body = raw.partition(b"\r\n\r\n")
    names = [line.split(b":")[0].lower() for line in head.split(b"\r\n")[1:]]
    lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
    assert len(names) == len(set(names))
    assert lengths == [b"content-length: %d" % len(body)]
    assert json.loads(body)["choices"][0]["message"]["content"] == "r1"
    request, sent = engine.requests[0]
    assert request.headers.getlist("content-length") == [str(len(sent))]


async def test_a_client_that_hangs_up_leaves_nothing_open(url: str, engine: Any, server: SessionServer) -> None:
    session = await created(url)
    hold = engine.hold()
    await exchange(url, *chat(session), hang_up_after=hold)
    again = await exchange(url, *chat(session))
    assert server.requests_open == 0
    hold.released.set()
    shown = await exchange(url, f"GET /sessions/{session} HTTP/1.1")
    records = json.loads(shown.partition(b"\r\n\r\n")[2])["records"]
    assert json.loads(again.partition(b"\r\n\r\n")[2])["choices"][0]["message"]["content"] == "r2"
    assert [r["response"]["choices"][0]["message"]["content"] for r in records] == ["r2"]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_openai_client_is_served_whole_and_streamed(url: str, engine: Any, stream: bool) -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    engine.then(content="hello", tool_calls=calls)
    base_url = f"{url}/sessions/{await created(url)}/v1"
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        if stream:
            (chunk,) = [chunk async for chunk in await client.chat.completions.create(**asked, stream=True)]
            said, usage = chunk.choices[0].delta, chunk.usage
        else:
            whole = await client.chat.completions.create(**asked)
            said, usage = whole.choices[0].message, whole.usage
    assert said.content == "hello"
    assert said.tool_calls[0].function.arguments == '{"a": 1}'
    assert usage is not None
    assert usage.completion_tokens == len("hello") + 1
