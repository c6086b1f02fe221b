"""A scripted engine: answers chat completions from a list, and keeps what it was asked."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from miles_sim.agent.plan import Plan
from miles_sim.agent.player import play_plan
from miles_sim.ledger import Turn

Answer = Callable[[dict[str, Any]], tuple[int, Any]]


def tag_of(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"]).rsplit("[", 1)[1].rstrip("]")


def completion(name: str, content: str | None = "done", **message: Any) -> tuple[int, dict[str, Any]]:
    choice = {"message": {"role": "assistant", "content": content, **message}, "finish_reason": "stop", "index": 0}
    return 200, {"id": name, "choices": [choice]}


def call(name: str, number: int = 0) -> dict[str, Any]:
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": "{}"}, "index": number}


class Script(httpx.AsyncBaseTransport):
    """Answers by the tag of the last message; what is not scripted gets a plain reply named after tag and attempt."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        self.urls: list[str] = []
        self.answers: dict[str, Answer | tuple[int, Any]] = {}
        self.journal: list[Turn] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        body = json.loads(request.content)
        tag = tag_of(body)
        attempt = sum(tag_of(old) == tag for old in self.asked)
        self.asked.append(body)
        self.raw.append(request.content)
        self.urls.append(str(request.url))
        answer = self.answers.get(tag, completion(f"{tag}#{attempt}", f"reply {tag}#{attempt}"))
        status, document = answer(body) if callable(answer) else answer
        if status == 0:
            raise document
        if isinstance(document, str):
            return httpx.Response(status, text=document)
        return httpx.Response(status, json=document)

    async def play(self, plan: dict[str, Any], **options: Any) -> dict[str, Any] | None:
        settings = {"base_url": "http://sessions/s1", "request_kwargs": {}, "rollout": 0, "seed": 0} | options
        async with httpx.AsyncClient(transport=self) as client:
            return await play_plan(Plan.model_validate(plan), client=client, journal=self.journal, **settings)

    def asked_with(self, tag: str) -> dict[str, Any]:
        (body,) = (body for body in self.asked if tag_of(body) == tag)
        return body

    def shape(self, tag: str) -> str:
        """Roles of the request that carries `tag`, by their first letters."""
        return "".join(message["role"][0] for message in self.asked_with(tag)["messages"])

    def turns(self) -> list[tuple[str, str, str | None]]:
        return [(turn.step, turn.kind, turn.parent) for turn in self.journal]


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def reply_with_calls() -> Callable[..., tuple[int, dict[str, Any]]]:
    def make(name: str, *functions: str) -> tuple[int, dict[str, Any]]:
        return completion(name, None, tool_calls=[call(f, n) for n, f in enumerate(functions)], reasoning_content=None)

    return make
