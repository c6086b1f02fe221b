"""The session server as a web application."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from miles_sim.rollout.errors import (
    ClientGoneError,
    MessageValidationError,
    RolloutError,
    SessionError,
    SessionNotFoundError,
)
from miles_sim.rollout.record import Record
from miles_sim.rollout.session.answer import completed, json_response, passed_through
from miles_sim.rollout.session.chat import read_chat, read_object
from miles_sim.rollout.session.completion import read_completion
from miles_sim.rollout.session.conversation import Commit, Conversation, ids
from miles_sim.rollout.session.headers import to_engine
from miles_sim.rollout.session.linear import LinearConversation
from miles_sim.rollout.session.matching import resolve
from miles_sim.rollout.session.tree import TreeConversation, tree_metadata
from miles_sim.rollout.session.upstream import Answer, Call, Upstream
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ChatTokenizer

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_CHAT = "v1/chat/completions"


@dataclass(frozen=True, eq=False)
class _Session:
    id: str
    conversation: Conversation
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    def not_found(self) -> SessionNotFoundError:
        return SessionNotFoundError(f"session_id: {self.id!r} is no open session")

    async def until_closed(self) -> SessionError:
        await self.closed.wait()
        return self.not_found()


class SessionServer:
    """Serves sessions before one engine, or a router.

    Routes: GET `/health`; POST `/sessions`; GET and DELETE `/sessions/{id}`; POST `/sessions/{id}/samples` and
    `/sessions/{id}/v1/chat/completions`; all else under `/sessions/{id}/` goes to the engine unrecorded. An error is
    `{"error": text}` under the status of its type; assembly errors are 422.
    """

    def __init__(
        self,
        settings: RolloutSettings,
        tokenizer: ChatTokenizer,
        engine_url: str,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        self._matcher = resolve(settings.message_matcher)
        self._sessions: dict[str, _Session] = {}
        self._upstream = Upstream(engine_url, request_timeout=settings.request_timeout, transport=transport)
        self.requests_open = 0
        """Requests that wait for the engine."""
        self.app = Starlette(
            routes=[
                Route("/health", self._health, methods=["GET"]),
                Route("/sessions", self._create, methods=["POST"]),
                Route("/sessions/{id}", self._show, methods=["GET"]),
                Route("/sessions/{id}", self._delete, methods=["DELETE"]),
                Route("/sessions/{id}/" + _CHAT, self._chat, methods=["POST"]),
                Route("/sessions/{id}/samples", self._samples, methods=["POST"]),
                Route("/sessions/{id}/{path:path}", self._proxy, methods=_METHODS),
            ],
            exception_handlers={RolloutError: _refused},
            lifespan=self._lifespan,
        )

    @property
    def sessions_open(self) -> int:
        """Sessions created and not deleted."""
        return len(self._sessions)

    async def aclose(self) -> None:
        """Close all sessions and connections; requests under way are answered 404."""
        for session in list(self._sessions.values()):
            self._close(session)
        await self._upstream.aclose()

    async def _health(self, request: Request) -> Response:
        return json_response({"status": "ok"})

    async def _create(self, request: Request) -> Response:
        session = _Session(id=uuid.uuid4().hex, conversation=self._conversation())
        self._sessions[session.id] = session
        return json_response({"session_id": session.id})

    async def _show(self, request: Request) -> Response:
        session = self._session(request)
        commits = session.conversation.commits()
        metadata: dict[str, Any] = {
            "max_trim_tokens": self._tokenizer.max_trim_tokens,
            "accumulated_token_ids": ids(commits[-1].record) if commits else [],
        }
        if self._settings.session == "v2":
            metadata["tree"] = tree_metadata([commit.record for commit in commits])
        return json_response(
            {"session_id": session.id, "records": [_dump(commit) for commit in commits], "metadata": metadata}
        )

    async def _delete(self, request: Request) -> Response:
        self._close(self._session(request))
        return Response(status_code=204)

    async def _chat(self, request: Request) -> Response:
        requested_at = time.time()
        body = await request.body()
        session = self._session(request)
        asked = read_chat(body, self._settings)
        position = session.conversation.position(asked, requested_at=requested_at)
        try:
            sent = asked.engine_body(position.messages, position.prompt_ids)
            answer = await self._send(request, session, _CHAT, orjson.dumps(sent))
            if session.closed.is_set():
                raise session.not_found()
            if answer.status_code != 200:
                return passed_through(answer)
            completion = read_completion(answer.body, prompt_tokens=len(position.prompt_ids))
            session.conversation.commit(position, sent, completion, at=time.time())
        finally:
            session.conversation.release(position)
        return completed(answer, completion.response, stream=asked.stream)

    async def _samples(self, request: Request) -> Response:
        body = await request.body()
        session = self._session(request)
        asked = read_object(body) if body else {}
        max_seq_len = asked.get("max_seq_len", self._settings.max_seq_len)
        if max_seq_len is not None and (type(max_seq_len) is not int or max_seq_len < 1):
            raise MessageValidationError(f"max_seq_len: {max_seq_len!r} is not null or an integer of 1 or more")
        metadata = asked.get("metadata")
        if not isinstance(metadata, dict | None):
            raise MessageValidationError(f"metadata: {type(metadata).__name__}, not an object")
        records = tuple(commit.record for commit in session.conversation.commits())
        payload = await asyncio.to_thread(self._assembled, records, max_seq_len, metadata)
        return Response(payload, media_type="application/octet-stream")

    async def _proxy(self, request: Request) -> Response:
        body = await request.body()
        path = quote(request.path_params["path"], safe="/:@!$&'()*+,;=~")
        return passed_through(await self._send(request, self._session(request), path, body))

    def _session(self, request: Request) -> _Session:
        name = request.path_params["id"]
        session = self._sessions.get(name)
        if session is None:
            raise SessionNotFoundError(f"session_id: {name!r} is no open session")
        return session

    def _close(self, session: _Session) -> None:
        self._sessions.pop(session.id, None)
        session.closed.set()

    def _conversation(self) -> Conversation:
        kind = TreeConversation if self._settings.session == "v2" else LinearConversation
        return kind(self._tokenizer, self._matcher, max_nodes=self._settings.max_nodes)

    async def _send(self, request: Request, session: _Session, path: str, body: bytes) -> Answer:
        headers = to_engine(request.headers.items(), routing_key=session.id)
        call = Call(request.method, path, request.url.query, headers, body)
        with self._counted():
            return await self._upstream.send(call, unless=(_until_gone(request), session.until_closed()))

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.requests_open += 1
        try:
            yield
        finally:
            self.requests_open -= 1

    def _assembled(
        self, records: Sequence[Record], max_seq_len: int | None, agent_metadata: dict[str, Any] | None
    ) -> bytes:
        from miles_sim.rollout.collect import collect
        from miles_sim.rollout.wire import encode_samples

        collected = collect(
            records,
            settings=self._settings,
            tokenizer=self._tokenizer,
            max_seq_len=max_seq_len,
            agent_metadata=agent_metadata,
        )
        return encode_samples(
            collected.samples, collected.session_metadata, collected.empty_reason, session=self._settings.session
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        await self.aclose()


async def _until_gone(request: Request) -> SessionError:
    """Ends when the client has left; its body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    return ClientGoneError("client: left while its request was under way")


async def _refused(request: Request, error: Exception) -> Response:
    status_code = error.status_code if isinstance(error, SessionError) else 422
    return json_response({"error": str(error)}, status_code=status_code)


def _dump(commit: Commit) -> Mapping[str, Any]:
    """A record in miles' shape."""
    return {
        "timestamp": commit.record.committed_at,
        "request_timestamp": commit.record.requested_at,
        "method": "POST",
        "path": "/" + _CHAT,
        "status_code": 200,
        "request": commit.request,
        "response": commit.response,
    }
