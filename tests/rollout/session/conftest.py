"""A scripted engine, and a session server before it on one in-process network."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from miles_sim.rollout.session.server import SessionServer
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ByteTokenizer
from miles_sim.transport import LocalNetwork

Body = dict[str, Any]


def reply_to(body: Body, number: int, tokenizer: ByteTokenizer, **message: Any) -> Body:
    """What a sound engine says to `body`: `r<number>`, or `message`."""
    text = message.get("content", f"r{number}")
    output_ids = [*tokenizer.encode(text or ""), tokenizer.text_stop_id]
    return {
        "id": f"{number:032x}",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, "tool_calls": None, **message},
                "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
                "meta_info": {
                    "id": f"{number:032x}",
                    "prompt_tokens": len(body["input_ids"]),
                    "completion_tokens": len(output_ids),
                    "cached_tokens": 0,
                    "output_token_logprobs": [[-0.5, token, None] for token in output_ids],
                },
            }
        ],
        "usage": {"prompt_tokens": len(body["input_ids"]), "completion_tokens": len(output_ids)},
    }


@dataclass
class Hold:
    """A request that the engine does not answer before it is released."""

    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    abandoned: asyncio.Event = field(default_factory=asyncio.Event)
    instead: Response | None = None
    """What the engine says at last, in place of a sound reply."""

    async def arrival(self) -> None:
        """Until the request is at the engine; one that was answered on the way never comes."""
        await asyncio.wait_for(self.arrived.wait(), timeout=10)


Script = Callable[[Body], Body | Response]


class ScriptedEngine:
    """Answers soundly, but for what `script` lists for the requests that come next."""

    def __init__(self, tokenizer: ByteTokenizer) -> None:
        self.tokenizer = tokenizer
        self.requests: list[tuple[Request, bytes]] = []
        self.script: list[Script] = []
        self.holds: list[Hold] = []
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/{path:path}", self._other, methods=["GET", "PUT", "POST", "DELETE", "PATCH"]),
            ]
        )

    @property
    def bodies(self) -> list[Body]:
        return [json.loads(body) for _, body in self.requests]

    def hold(self) -> Hold:
        """The next request waits."""
        self.holds.append(Hold())
        return self.holds[-1]

    def then(self, **message: Any) -> None:
        """The next reply has these in its message."""
        self.script.append(lambda body: reply_to(body, len(self.requests), self.tokenizer, **message))

    def change(self, change: Callable[[Body], Any]) -> None:
        """The next reply is sound, then changed."""

        def changed(body: Body) -> Body:
            reply = self.sound(body)
            change(reply)
            return reply

        self.script.append(changed)

    def answer(self, response: Response) -> None:
        self.script.append(lambda body: response)

    def sound(self, body: Body) -> Body:
        return reply_to(body, len(self.requests), self.tokenizer)

    async def _chat(self, request: Request) -> Response:
        raw = await request.body()
        self.requests.append((request, raw))
        body = json.loads(raw)
        script = self.script.pop(0) if self.script else None
        reply = script(body) if script else self.sound(body)
        if self.holds:
            hold = self.holds.pop(0)
            hold.arrived.set()
            try:
                await hold.released.wait()
            except asyncio.CancelledError:
                hold.abandoned.set()
                raise
            reply = hold.instead or reply
        return reply if isinstance(reply, Response) else Response(json.dumps(reply), media_type="application/json")

    async def _other(self, request: Request) -> Response:
        self.requests.append((request, await request.body()))
        return Response(f"{request.method} {request.scope['raw_path'].decode()}?{request.url.query}", status_code=203)


class Sessions:
    """A session server, its client, and one session of it."""

    def __init__(self, server: SessionServer, client: httpx.AsyncClient, engine: ScriptedEngine, session: str) -> None:
        self.server, self.client, self.engine, self.session = server, client, engine, session
        self.url = f"/sessions/{session}"

    async def chat(self, *messages: Any, **fields: Any) -> httpx.Response:
        return await self.client.post(f"{self.url}/v1/chat/completions", json={"messages": messages, **fields})

    async def say(self, *messages: Any, **fields: Any) -> dict[str, Any]:
        """The assistant message of a chat that must succeed."""
        response = await self.chat(*messages, **fields)
        assert response.status_code == 200, response.text
        message: dict[str, Any] = response.json()["choices"][0]["message"]
        return message

    async def show(self) -> dict[str, Any]:
        shown: dict[str, Any] = (await self.client.get(self.url)).raise_for_status().json()
        return shown

    async def texts(self) -> list[str]:
        """What the recorded replies say, in commit order."""
        return [r["response"]["choices"][0]["message"]["content"] for r in (await self.show())["records"]]


Open = Callable[..., Any]


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(ByteTokenizer())


@pytest.fixture(scope="session")
def new_engine() -> Callable[[], ScriptedEngine]:
    return lambda: ScriptedEngine(ByteTokenizer())


@pytest.fixture
async def opened(engine: ScriptedEngine) -> AsyncIterator[Open]:
    """`await opened(session="v1", …)`: a session under these settings. At the end nothing may be left open."""
    async with AsyncExitStack() as stack:

        async def start(tokenizer: ByteTokenizer | None = None, **settings: Any) -> Sessions:
            network = await stack.enter_async_context(LocalNetwork())
            network.mount("engine", engine.app)
            if tokenizer is not None:
                engine.tokenizer = tokenizer
            server = SessionServer(RolloutSettings(**settings), engine.tokenizer, "http://engine", transport=network)
            stack.push_async_callback(server.aclose)
            network.mount("sessions", server.app)
            client = httpx.AsyncClient(base_url="http://sessions", transport=network)
            session = (await client.post("/sessions")).json()["session_id"]
            stack.callback(lambda: _nothing_open(server))
            return Sessions(server, client, engine, session)

        yield start


def _nothing_open(server: SessionServer) -> None:
    assert server.requests_open == 0


def user(text: str) -> Body:
    return {"role": "user", "content": text}


@pytest.fixture(name="user")
def _user() -> Callable[[str], Body]:
    return user
