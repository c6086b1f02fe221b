"""A Hypothesis state machine that drives a session server with clients who cross each other. Needs the `test` extra.

    TestMine = session_machine(my_server, session="v2").TestCase

Clients open sessions, ask, go back and ask again, leave, and delete, in any order; the engine answers, fails or answers
nonsense whenever the machine lets it. Some clients stream, and their list of tools may change from one request to the
next. At every moment: what was answered is recorded in its own session, as the engine said it, as its client was told
it, whole or in chunks, and in the order of answering; what failed left no trace; and in the end nothing is open.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import httpx
import orjson
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from miles_sim.engine.engine import Engine
from miles_sim.engine.settings import EngineSettings
from miles_sim.transport import ASGIApp, serve

T = TypeVar("T")
SessionServer = Callable[[str], AbstractAsyncContextManager[str]]
"""Starts a session server before the engine at that URL, and gives its own URL."""
Message = dict[str, Any]
Ending = Literal["answered", "refused", "garbled"]
MOST_SESSIONS = 3
TOOLS = ("tool_of_one", "tool_of_other")
"""Names of which a request's list has none, one or both."""
PATIENCE = 20.0
"""Seconds after which a server that neither asks its engine nor answers is at fault."""


@dataclass
class _Held:
    """One request that has reached the engine, and how it is to end."""

    ending: asyncio.Future[Ending]
    abandoned: asyncio.Event = field(default_factory=asyncio.Event)


class _Gate:
    """An ASGI app before the engine's: each chat request waits there until it is told how to end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.arrived: asyncio.Queue[_Held] = asyncio.Queue()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != "/v1/chat/completions":
            await self._app(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        held = _Held(asyncio.get_running_loop().create_future())
        self.arrived.put_nowait(held)
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait([held.ending, gone], return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
        finally:
            gone.cancel()
            if not held.ending.done():
                held.abandoned.set()
        if held.ending.done():
            await self._end(held.ending.result(), scope, body, send)

    async def _end(self, ending: Ending, scope: Any, body: bytes, send: Any) -> None:
        if ending == "answered":
            await self._app(scope, _whole(body), send)
            return
        status, text = (503, b'{"error": "overloaded"}') if ending == "refused" else (200, b'{"choices": []}')
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text})


def _whole(body: bytes) -> Callable[[], Awaitable[Any]]:
    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass(frozen=True)
class _Told:
    """What a client asked for, and what it was told: whole, or in chunks that are joined."""

    messages: tuple[tuple[str, str], ...]
    """Role and text of each message asked with."""
    tools: tuple[str, ...]
    id: str
    message: Message
    finish_reason: str | None
    usage: dict[str, Any] | None


@dataclass
class _Chat:
    """One request under way."""

    session: "_Session"
    messages: list[Message]
    tools: tuple[str, ...]
    task: "asyncio.Task[httpx.Response]"
    held: _Held


@dataclass
class _Session:
    url: str
    histories: list[list[Message]] = field(default_factory=lambda: [[]])
    """What a client may go on from: nothing, or any conversation up to one of its replies."""
    answered: dict[str, _Told] = field(default_factory=dict)
    """By response id, in the order of answering."""
    deleted: bool = False


@asynccontextmanager
async def reference_server(session: Literal["v1", "v2"], engine_url: str) -> AsyncIterator[str]:
    """miles-sim's own session server, over a socket."""
    from miles_sim.rollout.session.server import SessionServer as Server
    from miles_sim.rollout.settings import RolloutSettings
    from miles_sim.tokenizer import built_in

    server = Server(RolloutSettings(session=session), built_in("chatml"), engine_url)
    try:
        async with serve(server.app) as url:
            yield url
    finally:
        await server.aclose()


def session_machine(
    server: SessionServer,
    *,
    session: Literal["v1", "v2"],
    engine: EngineSettings | None = None,
    streams: bool = True,
) -> type[RuleBasedStateMachine]:
    """The machine for one session server; its `TestCase` is what pytest collects.

    `server`: see `SessionServer`; it is started anew for each run. `session`: `v2` promises that every answer is
    kept, and refuses nothing; `v1` is linear: it may refuse, and a request that goes back takes later answers back.
    `streams`: some clients ask for a stream, which `usage` must be part of.
    The routes are miles': POST `/sessions`, GET and DELETE `/sessions/{id}`, chat completions below it.
    """

    class SessionMachine(_Machine):
        def __init__(self) -> None:
            super().__init__(server, session, engine or EngineSettings(), streams=streams)

    return SessionMachine


class _Machine(RuleBasedStateMachine):
    def __init__(self, server: SessionServer, version: str, settings: EngineSettings, *, streams: bool) -> None:
        super().__init__()
        self.streams = streams
        self.linear = version == "v1"
        self.engine = Engine(settings, seed=0)
        self.gate = _Gate(self.engine.app)
        self.sessions: list[_Session] = []
        self.chats: list[_Chat] = []
        self.loop = asyncio.new_event_loop()
        self.stack = AsyncExitStack()
        self.client: httpx.AsyncClient = self.wait(self._begin(server))

    async def _begin(self, server: SessionServer) -> httpx.AsyncClient:
        engine_url = await self.stack.enter_async_context(serve(self.gate))
        url = await self.stack.enter_async_context(server(engine_url))
        client = httpx.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False)
        return await self.stack.enter_async_context(client)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, PATIENCE))

    def teardown(self) -> None:
        try:
            while self.chats:
                self.end(0, "answered")
            self.everything_is_where_it_was_answered()
            _must(self.engine.requests_open == 0, "engine requests are open after all clients were answered")
        finally:
            for chat in self.chats:
                chat.task.cancel()
            self.loop.run_until_complete(self.stack.aclose())
            self.loop.close()

    @precondition(lambda self: len(self.sessions) < MOST_SESSIONS)
    @rule()
    def open(self) -> None:
        """A client opens a session."""
        response = self.wait(self.client.post("/sessions", json={}))
        _must(response.status_code == 200, response.text)
        self.sessions.append(_Session(f"/sessions/{response.json()['session_id']}"))

    @precondition(lambda self: self.sessions)
    @rule(
        which=st.integers(0, 9),
        history=st.integers(0, 9),
        text=st.sampled_from("abc"),
        tools=st.sampled_from(((), (), TOOLS[:1], TOOLS[1:], TOOLS)),
        stream=st.booleans(),
    )
    def ask(self, which: int, history: int, text: str, tools: tuple[str, ...], stream: bool) -> None:
        """A client asks, going on from any reply it was given, the latest one most likely."""
        session = self.sessions[which % len(self.sessions)]
        messages = [*session.histories[-1 - history % len(session.histories)], {"role": "user", "content": text}]
        status = self.wait(self._ask(session, messages, tools, {"stream": True} if stream and self.streams else {}))
        if status is not None:
            allowed = {404} if session.deleted else {400, 409} if self.linear else set[int]()
            _must(status in allowed, f"a request was answered {status} without asking the engine")

    async def _ask(
        self, session: _Session, messages: list[Message], tools: tuple[str, ...], how: Mapping[str, Any]
    ) -> int | None:
        """Until the request has reached the engine; its status, if it was answered before."""
        body: dict[str, Any] = {"model": "sim", "max_tokens": 256, "messages": messages, **how}
        if tools:
            body["tools"] = [_tool(name) for name in tools]
        task = asyncio.ensure_future(self.client.post(f"{session.url}/v1/chat/completions", json=body))
        arrived = asyncio.ensure_future(self.gate.arrived.get())
        await asyncio.wait({task, arrived}, return_when=asyncio.FIRST_COMPLETED)
        if arrived.done():
            self.chats.append(_Chat(session, messages, tools, task, arrived.result()))
            return None
        arrived.cancel()
        return (await task).status_code

    @precondition(lambda self: self.chats)
    @rule(which=st.integers(0, 9), ending=st.sampled_from(("answered", "answered", "refused", "garbled")))
    def end(self, which: int, ending: Ending) -> None:
        """The engine answers one of the requests under way, fails, or answers what is no reply."""
        chat = self.chats.pop(which % len(self.chats))
        session = chat.session
        if not chat.held.abandoned.is_set():
            chat.held.ending.set_result(ending)
        response = self.wait(_result(chat.task))
        if session.deleted:
            _must(response.status_code == 404, f"a deleted session answered {response.status_code}")
        elif ending != "answered":
            _must(response.status_code >= 400, f"the engine failed, and the client was answered {response.status_code}")
        elif response.status_code == 200:
            told = _told(chat, response)
            session.answered[told.id] = told
            session.histories.append([*chat.messages, told.message])
        else:
            _must(self.linear, f"the engine answered, and the client was answered {response.status_code}")

    @precondition(lambda self: self.chats)
    @rule(which=st.integers(0, 9))
    def leave(self, which: int) -> None:
        """A client hangs up on its request."""
        chat = self.chats.pop(which % len(self.chats))
        chat.task.cancel()
        self.wait(_left(chat))

    @precondition(lambda self: any(not session.deleted for session in self.sessions))
    @rule(which=st.integers(0, 9))
    def delete(self, which: int) -> None:
        """A client deletes its session, with requests of it under way or not."""
        there = [session for session in self.sessions if not session.deleted]
        session = there[which % len(there)]
        response = self.wait(self.client.delete(session.url))
        _must(response.status_code in (200, 204), response.text)
        session.deleted = True

    @invariant()
    def everything_is_where_it_was_answered(self) -> None:
        """Each session's records are its answers, and say what the engine said."""
        for session in self.sessions:
            response = self.wait(self.client.get(session.url))
            if session.deleted:
                _must(response.status_code == 404, f"a deleted session is shown: {response.status_code}")
                continue
            _must(response.status_code == 200, f"an open session is answered {response.status_code}")
            records = response.json()["records"]
            kept = [record["response"]["id"] for record in records]
            if self.linear:
                still = [name for name in session.answered if name in set(kept)]
                _must(kept == still, "records are not a part of what was answered")
                _must(kept[-1:] == list(session.answered)[-1:], "the latest answer is not recorded")
            else:
                _must(kept == list(session.answered), "records are not what was answered")
            for record in records:
                self._true(record)
                _same(record, session.answered[record["response"]["id"]])

    def _true(self, record: dict[str, Any]) -> None:
        made = next(one for one in self.engine.generations if one.id == record["response"]["id"])
        meta_info = record["response"]["choices"][0]["meta_info"]
        sampled = [entry[1] for entry in meta_info["output_token_logprobs"]]
        _must(sampled == list(made.output_ids), "recorded ids are not those that the engine sampled")
        _must(record["request"]["input_ids"] == list(made.prompt_ids), "recorded prompt ids are not the engine's")
        text = self.engine.tokenizer.decode(made.prompt_ids)
        shown = {name for name in TOOLS if name in text}
        _must(shown == set(_names(record["request"].get("tools"))), "the prompt has other tools than the request")


def _tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


def _names(tools: Any) -> tuple[str, ...]:
    return tuple(tool["function"]["name"] for tool in tools or ())


def _texts(messages: Iterable[Message]) -> tuple[tuple[str, str], ...]:
    return tuple((message["role"], message.get("content") or "") for message in messages)


def _told(chat: _Chat, response: httpx.Response) -> _Told:
    whole = not response.headers.get("content-type", "").startswith("text/event-stream")
    reply = response.json() if whole else _joined(response.text)
    choice = reply["choices"][0]
    return _Told(
        messages=_texts(chat.messages),
        tools=chat.tools,
        id=reply["id"],
        message=_as_sent(choice["message"]),
        finish_reason=choice["finish_reason"],
        usage=reply.get("usage"),
    )


def _joined(text: str) -> dict[str, Any]:
    """The answer that a stream's chunks make up, as OpenAI's clients join them."""
    *events, done = [event.removeprefix("data: ") for event in text.split("\n\n") if event]
    _must(done == "[DONE]", f"a stream ends with {done[:80]!r}, not with [DONE]")
    chunks = [orjson.loads(event) for event in events]
    _must(len({chunk["id"] for chunk in chunks}) == 1, "chunks of one stream have several ids")
    message: Message = {"role": "assistant", "content": ""}
    finish_reason = None
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        for name, value in choice["delta"].items():
            message[name] = (message.get(name) or "") + value if isinstance(value, str) and name != "role" else value
        finish_reason = choice["finish_reason"] or finish_reason
    usage = next((chunk["usage"] for chunk in reversed(chunks) if chunk.get("usage")), None)
    return {
        "id": chunks[0]["id"],
        "choices": [{"message": message, "finish_reason": finish_reason}],
        "usage": usage,
    }


def _same(record: dict[str, Any], told: _Told) -> None:
    """What is shown of an exchange is what its client asked and was told."""
    asked, response = record["request"], record["response"]
    choice = response["choices"][0]
    _must(_texts(asked["messages"]) == told.messages, "a record's request is not what its client asked")
    _must(_names(asked.get("tools")) == told.tools, "a record's request has not the tools of its client's")
    said = _as_sent(choice["message"])
    _must(said.get("content") == told.message.get("content"), "a client was told another text than is recorded")
    _must(choice["finish_reason"] == told.finish_reason, "a client was told another finish reason than is recorded")
    _must(response.get("usage") == told.usage, "a client was told another usage than is recorded")


def _must(holds: bool, message: str) -> None:
    """As `assert`, but alive under `python -O`, too."""
    if not holds:
        raise AssertionError(message)


async def _result(task: "asyncio.Task[httpx.Response]") -> httpx.Response:
    return await task


async def _left(chat: _Chat) -> None:
    await asyncio.wait({chat.task})
    await chat.held.abandoned.wait()


def _as_sent(message: Message) -> Message:
    """A reply as a client sends it back: without what is null."""
    return {key: value for key, value in message.items() if value is not None}
