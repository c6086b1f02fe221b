"""The session server as a web application."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from miles_sim.rollout.engine_reply import check_recordable
from miles_sim.rollout.errors import (
    ClientGoneError,
    MessageValidationError,
    SessionError,
    UpstreamResponseError,
)
from miles_sim.rollout.record import Record
from miles_sim.rollout.selection import has_own_hooks
from miles_sim.rollout.session.answer import check_not_elsewhere, completed, json_response, passed_through
from miles_sim.rollout.session.app import SessionApp
from miles_sim.rollout.session.body import read_body
from miles_sim.rollout.session.chat import ChatRequest, read_chat, read_object
from miles_sim.rollout.session.completion import Completion, ids_in, read_completion
from miles_sim.rollout.session.conversation import Commit, Conversation, Position
from miles_sim.rollout.session.headers import to_engine
from miles_sim.rollout.session.linear import LinearConversation
from miles_sim.rollout.session.matching import resolve
from miles_sim.rollout.session.registry import Session, Sessions
from miles_sim.rollout.session.tree import TreeConversation
from miles_sim.rollout.session.upstream import Answer, Call, Upstream
from miles_sim.rollout.session_metadata import session_metadata
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ChatTokenizer

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_CHAT = "v1/chat/completions"
_AT_ONCE = 16_384
"""Ids of a session, counted once a generation, that are assembled within two milliseconds."""


class SessionServer:
    """Serves sessions before one engine, or a router.

    Routes: GET `/health`; POST `/sessions`; GET and DELETE `/sessions/{id}`; POST `/sessions/{id}/samples` and
    `/sessions/{id}/v1/chat/completions`; all else under `/sessions/{id}/` goes to the engine unrecorded. An error is
    `{"error": text}` under the status of its type; assembly errors are 422.

    `engine_url`: without a trailing path. `transport`: where requests to it go, the caller's to close; None: real
    connections. `instance_id`: told by `/health`, for those who run several servers. SettingsError for a matcher or a
    hook that cannot be had.
    """

    def __init__(
        self,
        settings: RolloutSettings,
        tokenizer: ChatTokenizer,
        engine_url: str,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        instance_id: str | None = None,
    ) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        self._matcher = resolve(settings.message_matcher)
        self._own_hooks = has_own_hooks(settings)
        self._instance_id = instance_id
        self._sessions = Sessions(self._conversation, idle_timeout=settings.session_idle_timeout)
        self._upstream = Upstream(engine_url, request_timeout=settings.request_timeout, transport=transport)
        self.requests_open = 0
        """Requests that wait for the engine."""
        self.app = SessionApp(
            routes=[
                Route("/sessions/{id}/" + _CHAT, self._chat, methods=["POST"]),
                Route("/sessions", self._create, methods=["POST"]),
                Route("/sessions/{id}/samples", self._samples, methods=["POST"]),
                Route("/sessions/{id}", self._show, methods=["GET"]),
                Route("/sessions/{id}", self._delete, methods=["DELETE"]),
                Route("/health", self._health, methods=["GET"]),
                Route("/sessions/{id}/{path:path}", self._proxy, methods=_METHODS),
            ],
            refused=_refused,
            broken=_broken,
            exception_handlers={HTTPException: _no_route},
            lifespan=self._lifespan,
        )

    @property
    def sessions_open(self) -> int:
        """Sessions created and neither deleted nor expired."""
        return len(self._sessions)

    async def aclose(self) -> None:
        """Close all sessions and connections; requests under way are answered 404."""
        self._sessions.close_all()
        await self._upstream.aclose()

    async def _health(self, request: Request) -> Response:
        instance = {} if self._instance_id is None else {"session_server_instance_id": self._instance_id}
        return json_response({"status": "ok", **instance})

    async def _create(self, request: Request) -> Response:
        return json_response({"session_id": self._sessions.create().id})

    async def _show(self, request: Request) -> Response:
        with self._sessions.used(request.path_params["id"]) as session:
            commits = session.conversation.commits()
            metadata = session_metadata(
                [commit.record for commit in commits],
                session=self._settings.session,
                max_trim_tokens=self._tokenizer.max_trim_tokens,
            )
            records = [_dump(commit) for commit in commits]
            return json_response({"session_id": session.id, "records": records, "metadata": metadata})

    async def _delete(self, request: Request) -> Response:
        self._sessions.close(self._sessions.get(request.path_params["id"]))
        return Response(status_code=204)

    async def _chat(self, request: Request) -> Response:
        requested_at = time.time()
        with self._sessions.used(request.path_params["id"]) as session:
            body = await self._body(request, session)
            asked = read_chat(body, self._settings)
            position = _positioned(session, asked, requested_at=requested_at)
            try:
                sent = asked.engine_body(position.messages, position.prompt_ids, position.offsets)
                answer = await self._send(request, session, _CHAT, _encoded(sent))
                if session.closed:
                    raise session.not_found()
                if answer.status_code != 200:
                    return passed_through(check_not_elsewhere(answer))
                completion = self._recordable(session, position, answer)
                session.conversation.commit(position, sent, completion, at=time.time())
                session.response_ids.add(completion.response_id)
            finally:
                session.conversation.release(position)
            return completed(answer, completion.response, stream=asked.stream)

    async def _samples(self, request: Request) -> Response:
        with self._sessions.used(request.path_params["id"]) as session:
            body = await self._body(request, session)
            asked = read_object(body) if body else {}
            if unknown := sorted(set(asked) - {"max_seq_len", "metadata"}):
                raise MessageValidationError(f"{unknown[0]}: not one of max_seq_len, metadata")
            max_seq_len = asked.get("max_seq_len")
            if max_seq_len is None:
                max_seq_len = self._settings.max_seq_len
            elif type(max_seq_len) is not int or max_seq_len < 1:
                raise MessageValidationError(f"max_seq_len: {max_seq_len!r} is not null or an integer of 1 or more")
            metadata = asked.get("metadata")
            if not isinstance(metadata, dict | None):
                raise MessageValidationError(f"metadata: {type(metadata).__name__}, not an object")
            records = tuple(commit.record for commit in session.conversation.commits())
            payload = await self._aside(records, max_seq_len, metadata)
            return Response(payload, media_type="application/octet-stream")

    async def _proxy(self, request: Request) -> Response:
        with self._sessions.used(request.path_params["id"]) as session:
            body = await self._body(request, session)
            path = quote(request.path_params["path"], safe="/:@!$&'()*+,;=~")
            return passed_through(await self._send(request, session, path, body))

    async def _body(self, request: Request, session: Session) -> bytes:
        """The body of a request, whose session is open still when all of it is there."""
        body = await read_body(request, limit=self._settings.max_body_bytes)
        if session.closed:
            raise session.not_found()
        return body

    def _recordable(self, session: Session, position: Position, answer: Answer) -> Completion:
        """The generation in `answer`; UpstreamResponseError where no sample could be made of it.

        Its id is taken all the same: another reply under it came from a cache, whatever became of the first.
        """
        try:
            return self._checked(session, position, answer)
        except UpstreamResponseError:
            session.response_ids.update(ids_in(answer.body))
            raise

    def _checked(self, session: Session, position: Position, answer: Answer) -> Completion:
        completion = read_completion(answer.body, prompt_tokens=len(position.prompt_ids))
        if completion.response_id in session.response_ids:
            raise UpstreamResponseError(
                f"id: {completion.response_id!r} is that of an earlier reply of this session; "
                "a cache on the way, or a client that sets `rid` twice"
            )
        check_recordable(
            completion.meta_info,
            completion.output_ids,
            prompt_tokens=len(position.prompt_ids),
            finish_reason=completion.finish_reason,
            offsets=position.offsets,
            settings=self._settings,
            tokenizer=self._tokenizer,
        )
        return completion

    def _conversation(self) -> Conversation:
        kind = TreeConversation if self._settings.session == "v2" else LinearConversation
        return kind(self._settings, self._tokenizer, self._matcher)

    async def _send(self, request: Request, session: Session, path: str, body: bytes) -> Answer:
        headers = to_engine(request.headers.items(), routing_key=session.id)
        call = Call(request.method, path, request.scope["query_string"].decode("latin-1"), headers, body)
        with self._counted():
            return await self._upstream.send(call, unless=(lambda: _until_gone(request), lambda: session.over))

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.requests_open += 1
        try:
            yield
        finally:
            self.requests_open -= 1

    async def _aside(
        self, records: Sequence[Record], max_seq_len: int | None, agent_metadata: dict[str, Any] | None
    ) -> bytes:
        """Assembled on a thread, so that other sessions need not wait; at once what is done sooner than a thread is
        begun. Hooks of others take as long as they like."""
        size = sum(len(record.prompt_ids) + len(record.output_ids) for record in records)
        if size <= _AT_ONCE and not self._own_hooks:
            return self._assembled(records, max_seq_len, agent_metadata)
        return await asyncio.to_thread(self._assembled, records, max_seq_len, agent_metadata)

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


def _positioned(session: Session, asked: ChatRequest, *, requested_at: float) -> Position:
    try:
        return session.conversation.position(asked, requested_at=requested_at)
    except RecursionError:
        raise MessageValidationError("messages: nested too deeply") from None


def _encoded(sent: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(sent)
    except orjson.JSONEncodeError as error:  # it reads deeper nesting than it writes
        raise MessageValidationError(f"body: cannot be sent on: {error}") from None


async def _refused(request: Request, error: Exception) -> Response:
    status_code = error.status_code if isinstance(error, SessionError) else 422
    return json_response({"error": str(error)}, status_code=status_code)


async def _no_route(request: Request, error: Exception) -> Response:
    status_code, headers = (error.status_code, error.headers) if isinstance(error, HTTPException) else (500, None)
    text = f"{request.method} {request.url.path}: {'no such route' if status_code == 404 else 'not allowed'}"
    response = json_response({"error": text}, status_code=status_code)
    response.headers.update(headers or {})
    return response


async def _broken(request: Request, error: Exception) -> Response:
    """A fault of our own, or of a tokenizer; the server logs it, too."""
    return json_response({"error": f"internal: {type(error).__name__}: {error}"}, status_code=500)


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
