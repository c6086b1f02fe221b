"""Engines behind the real sglang-router: what sticks, what is dropped, what failures look like (docs/router.md)."""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any

import httpx
import pytest

from miles_sim.engine.fleet import Fleet
from miles_sim.engine.settings import EngineSettings
from miles_sim.ledger import Generation
from miles_sim.rollout.session.server import SessionServer
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.scenarios import library
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.tokenizer import ByteTokenizer
from miles_sim.transport import LocalNetwork, serve
from miles_sim.verify import play as playing
from miles_sim.verify.judge import judge
from miles_sim.verify.pack import load_pack
from miles_sim.verify.report import Verdict

from .router import routed

CHAT = "/v1/chat/completions"
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Seen:
    """An engine's app with a note of each chat request and answer; `trouble` may take the place of the engine."""

    def __init__(self, app: Any, trouble: Callable[[Receive, Send], Awaitable[None]] | None = None) -> None:
        self._app = app
        self.trouble = trouble
        self.requests: list[dict[str, Any]] = []
        self.answers: list[bytes] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != CHAT:
            await self._app(scope, receive, send)
            return
        body = b""
        while (message := await receive()).get("more_body") or message.get("body"):
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.requests.append(json.loads(body))
        if self.trouble is not None:
            await self.trouble(receive, send)
            return
        once = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Message:
            return next(once, None) or await receive()

        async def note(message: Message) -> None:
            if message["type"] == "http.response.body":
                self.answers.append(message["body"])
            await send(message)

        await self._app(scope, replay, note)


async def hang(receive: Receive, send: Send) -> None:
    """Until the client goes."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def cut(receive: Receive, send: Send) -> None:
    """The beginning of a stream, then a broken connection."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    await send({"type": "http.response.body", "body": b'data: {"half": 1}\n\n', "more_body": True})
    raise ConnectionResetError


def fleet_of(count: int) -> Fleet:
    return Fleet(EngineSettings.model_validate({"default_reply": {"tokens": 12}}), count, seed=3)


@asynccontextmanager
async def behind(*apps: Any, **arguments: Any) -> Any:
    """(Client of the router, a stack on which each app's server ends)."""
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(serve(app)) for app in apps]
        url = await stack.enter_async_context(routed(urls, **arguments))
        client = httpx.AsyncClient(base_url=url, trust_env=False, timeout=60)
        yield await stack.enter_async_context(client)


def body(*texts: str, **fields: Any) -> dict[str, Any]:
    return {"model": "sim", "messages": [{"role": "user", "content": text} for text in texts], **fields}


def engine_text(fleet: Fleet, generation: Generation) -> str:
    return fleet.engines[0].tokenizer.decode(generation.prompt_ids)


async def read_into(got: list[bytes], answer: httpx.Response) -> None:
    async for piece in answer.aiter_raw():
        got.append(piece)


def test_the_router_is_the_one_that_was_measured() -> None:
    assert version("sglang-router") == "0.3.2"


async def test_a_session_sticks_to_its_engine_and_finds_its_prefix_there() -> None:
    fleet = fleet_of(2)
    conversations: dict[str, list[dict[str, Any]]] = {f"session-{number}": [] for number in range(24)}
    async with behind(*(engine.app for engine in fleet.engines)) as client:
        for _ in range(3):
            for key, messages in conversations.items():
                messages.append({"role": "user", "content": key})
                answer = await client.post(CHAT, json={"messages": messages}, headers={"X-SMG-Routing-Key": key})
                messages.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
    served = [engine.generations for engine in fleet.engines]
    assert sum(map(len, served)) == 72
    for generations in served:
        texts = [engine_text(fleet, generation) for generation in generations]
        keys = {key for key in conversations if any(f"user\n{key}<" in text for text in texts)}
        assert keys
        assert len(generations) == 3 * len(keys)
        assert sorted(g.cached_tokens > 0 for g in generations) == [False] * len(keys) + [True] * 2 * len(keys)


async def test_chat_requests_lose_what_the_router_does_not_know_and_answers_pass_byte_for_byte() -> None:
    seen = Seen(fleet_of(1).engines[0].app)
    sent = body(
        "hello",
        input_ids=[300, 301],
        return_meta_info=True,
        return_prompt_token_ids=True,
        rid="mine",
        extra_key="salt",
        logprobs=True,
        max_tokens=5,
        seed=7,
        stop_token_ids=[9],
        no_stop_trim=True,
    )
    async with behind(seen) as client:
        answer = await client.post(CHAT, json=sent)
    (got,) = seen.requests
    assert set(sent) - set(got) == {
        "input_ids",
        "return_meta_info",
        "return_prompt_token_ids",
        "rid",
        "extra_key",
        "max_tokens",
    }
    assert got["max_completion_tokens"] == 5
    assert answer.content == seen.answers[0]


async def test_the_session_server_names_what_was_dropped() -> None:
    server = SessionServer(RolloutSettings(), ByteTokenizer("chatml"), "http://unused")
    await server.aclose()
    async with behind(fleet_of(1).engines[0].app) as router:
        server = SessionServer(RolloutSettings(), ByteTokenizer("chatml"), str(router.base_url))
        async with serve(server.app) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:
            session = (await client.post("/sessions")).json()["session_id"]
            answer = await client.post(f"/sessions/{session}{CHAT}", json=body("hello"))
        await server.aclose()
    assert answer.status_code == 502
    assert "return_meta_info" in answer.text


async def test_the_contract_finds_what_was_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def through_the_router(app: Any, network: Any) -> Any:
        async with behind(app) as client:
            yield str(client.base_url).rstrip("/")

    monkeypatch.setattr(playing, "_reachable", through_the_router)
    network = LocalNetwork()
    case = await playing.play(library.load("linear"), ReferenceTarget(network), session="v2", network=network)
    await network.aclose()
    rule = next(rule for rule in load_pack() if rule.id == "engine/request-arrives-whole")
    (judgement,) = judge(case, [rule])
    assert judgement.verdict is Verdict.VIOLATION
    named = " ".join(violation.message for violation in judgement.violations)
    assert "input_ids did not arrive" in named
    assert "return_meta_info did not arrive" in named
    assert "logprobs did not arrive" not in named


async def test_sessions_of_an_engine_that_is_down_fail_until_its_breaker_opens_then_go_elsewhere() -> None:
    fleet = fleet_of(2)
    async with serve(fleet.engines[0].app) as alive, AsyncExitStack() as other:
        dead = await other.enter_async_context(serve(fleet.engines[1].app))
        async with (
            routed([alive, dead]) as url,
            httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client,
        ):
            await other.aclose()
            statuses: dict[str, list[int]] = {}
            for number in range(24):
                key = {"X-SMG-Routing-Key": f"session-{number}"}
                first = await client.post(CHAT, json=body("hello"), headers=key)
                statuses.setdefault(f"session-{number}", []).append(first.status_code)
                if first.status_code != 200:
                    break
            again = [(await client.post(CHAT, json=body("hello"), headers=key)).status_code for _ in range(2)]
    assert first.status_code == 500
    assert first.json()["error"]["code"] == "call_upstream_request_error"
    assert again == [500, 200]
    assert fleet.engines[1].generations == []


async def test_a_hanging_engine_is_asked_again_and_again() -> None:
    seen = Seen(fleet_of(1).engines[0].app, hang)
    async with behind(seen, request_timeout_secs=1, retry_max_retries=2) as client:
        answer = await client.post(CHAT, json=body("hello"))
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "call_upstream_request_error"
    assert len(seen.requests) == 2


async def test_a_stream_that_is_cut_breaks_off_without_another_try() -> None:
    seen = Seen(fleet_of(1).engines[0].app, cut)
    async with behind(seen) as client, client.stream("POST", CHAT, json=body("hello", stream=True)) as answer:
        got: list[bytes] = []
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
            await read_into(got, answer)
    assert (answer.status_code, b"".join(got)) == (200, b'data: {"half": 1}\n\n')
    assert len(seen.requests) == 1
