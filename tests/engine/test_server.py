"""The HTTP face: the release's routes, status codes and bodies, the same in process, over a socket and mocked."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from miles_sim.engine.engine import Engine
from miles_sim.engine.mock import engine_router
from miles_sim.transport import LocalNetwork, serve

Make = Callable[..., Engine]
JSON = {"content-type": "application/json"}
CHAT = "/v1/chat/completions"
TOOLS = [{"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}]
RULES = [{"contains": "call", "reply": {"tokens": 4, "tool_calls": [{"name": "look", "arguments": {"at": "x"}}]}}]

EXCHANGES: list[tuple[str, str, bytes]] = [
    ("POST", CHAT, json.dumps({"messages": [{"role": "user", "content": "hi"}], "return_meta_info": True}).encode()),
    ("POST", CHAT, json.dumps({"messages": [{"role": "user", "content": "call"}], "tools": TOOLS}).encode()),
    ("POST", CHAT, b'{"messages": []}'),
    ("POST", CHAT, b"{"),
    ("GET", CHAT, b""),
    ("GET", "/health", b""),
    ("HEAD", "/health", b""),
    ("GET", "/nope?x=1", b""),
]


async def exchange(client: httpx.AsyncClient, base: str) -> list[tuple[int, str | None, bytes]]:
    """Status, content type and body of each exchange."""
    seen = []
    for method, path, content in EXCHANGES:
        answer = await client.request(method, base + path, content=content, headers=JSON)
        seen.append((answer.status_code, answer.headers.get("content-type"), answer.content))
    return seen


@pytest.fixture
def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(trust_env=False)


async def test_requests_that_are_there_together_are_all_thought_through_before_one_is_answered(
    make_engine: Make,
) -> None:
    engine, known = make_engine(), []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": EXCHANGES[0][2]}

    async def send(message: Any) -> None:
        known.append(len(engine.generations))

    scope = {"type": "http", "method": "POST", "path": CHAT, "headers": [(b"content-type", b"application/json")]}
    await asyncio.gather(*(engine.app(scope, receive, send) for _ in range(3)))
    assert known == [3] * 6


async def test_in_process_socket_and_mock_give_the_same_bytes(make_engine: Make) -> None:
    network = LocalNetwork()
    network.mount("engine", make_engine(rules=RULES).app)
    async with httpx.AsyncClient(transport=network) as inside:
        expected = await exchange(inside, "http://engine")
    async with serve(make_engine(rules=RULES).app) as url, httpx.AsyncClient(trust_env=False) as over_socket:
        assert await exchange(over_socket, url) == expected
    with engine_router(make_engine(rules=RULES), "http://mocked/deep"):
        async with httpx.AsyncClient() as mocked:
            assert await exchange(mocked, "http://mocked/deep") == expected
    assert [status for status, _, _ in expected] == [200, 200, 400, 400, 405, 200, 405, 404]


async def test_other_paths_and_methods_are_answered_as_fastapi_does(make_engine: Make) -> None:
    network = LocalNetwork()
    network.mount("engine", make_engine().app)
    async with httpx.AsyncClient(transport=network, base_url="http://engine") as client:
        nope, wrong, health = await client.get("/x"), await client.get(CHAT), await client.get("/health")
    assert (nope.status_code, nope.json()) == (404, {"detail": "Not Found"})
    assert (wrong.status_code, wrong.json(), wrong.headers["allow"]) == (405, {"detail": "Method Not Allowed"}, "POST")
    assert (health.status_code, health.content) == (200, b"")


@pytest.mark.parametrize(
    ("fields", "status", "kind", "message"),
    [
        ({"messages": []}, 400, "BadRequestError", "Messages cannot be empty."),
        ({"max_tokens": 60}, 400, "BadRequestError", "Requested token count exceeds the model's maximum context"),
        ({"input_ids": [7] * 80}, 400, "BadRequestError", "The input (80 tokens) is longer than the model's context"),
        ({"input_ids": [99_999]}, 400, "BadRequestError", "The input_ids [99999] contains values greater than"),
        ({"top_p": 0}, 400, "BadRequestError", "top_p must be in (0, 1], got 0.0."),
        ({"temperature": -1}, 400, "BadRequestError", "temperature must be a non-negative finite number, got -1.0."),
        (
            {"stream": True, "return_meta_info": True},
            400,
            "BadRequest",
            "return_meta_info is not supported with stream",
        ),
        ({"max_tokens": "many"}, 400, "Bad Request", "1 validation error:"),
        ({"ebnf": "a"}, 501, "NotModelled", "ebnf: 'a' is not modelled"),
        ({"return_hidden_states": True}, 400, "BadRequestError", "The server is not configured to return the hidden"),
    ],
)
async def test_a_refusal_is_the_releases_error_object(
    make_engine: Make, fields: dict[str, Any], status: int, kind: str, message: str
) -> None:
    network = LocalNetwork()
    network.mount("engine", make_engine(context_length=64).app)
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    async with httpx.AsyncClient(transport=network) as client:
        answer = await client.post(f"http://engine{CHAT}", json=body)
    error = answer.json()
    assert (answer.status_code, error["object"], error["type"], error["code"]) == (status, "error", kind, status)
    assert error["message"].startswith(message)


async def test_the_openai_client_reads_it_over_a_socket(make_engine: Make) -> None:
    engine = make_engine(rules=RULES)
    async with (
        serve(engine.app) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        answer = await client.chat.completions.create(
            model="sim",
            messages=[{"role": "user", "content": "call"}],
            tools=TOOLS,  # type: ignore[arg-type]
            logprobs=True,
            extra_body={"return_meta_info": True},
        )
        with pytest.raises(openai.BadRequestError, match="Messages cannot be empty"):
            await client.chat.completions.create(model="sim", messages=[])
    choice = answer.choices[0]
    assert answer.id == engine.generations[0].id
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].function.arguments == '{"at": "x"}'  # type: ignore[union-attr]
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert len(choice.logprobs.content) == len(engine.generations[0].output_ids)


async def test_requests_open_counts_what_is_under_way(make_engine: Make) -> None:
    engine = make_engine()
    seen = []

    async def receive() -> dict[str, Any]:
        seen.append(engine.requests_open)
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        seen.append(engine.requests_open)

    scope = {"type": "http", "method": "GET", "path": "/health", "headers": [], "query_string": b""}
    await engine.app(scope, receive, send)
    assert seen
    assert set(seen) == {1}
    assert engine.requests_open == 0
