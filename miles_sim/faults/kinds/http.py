"""Faults of the HTTP layer: an answer of another status, or one of status 200 whose body is no reply.

Wordings are SGLang's where the engine itself says them (0.5.6 to 0.5.23: `serving_base.py`, `http_server.py`,
`tokenizer_manager.py`), else those of the servers and routers that stand before it.
"""

import gzip
import json
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from pydantic import Field

from miles_sim.document import Document
from miles_sim.faults.kind import Verdict, kind
from miles_sim.faults.strike import Answer, Asked, CannotStrike, Strike

_status_kind = partial(kind, layer="http", edge="engine", scenario="fault-http-status")
_body_kind = partial(kind, layer="http", edge="engine", scenario="fault-http-body")
_JSON = (("content-type", "application/json"),)
_TEXT = (("content-type", "text/plain; charset=utf-8"),)
_HTML = (("content-type", "text/html"),)


class Status(Document):
    """Whether the engine has heard of the request."""

    delivered: bool = False
    """The engine generates all the same; its reply is lost."""


class GatewayStatus(Document):
    """As `Status`; a gateway gives up while the engine is at work."""

    delivered: bool = True
    """The engine generates all the same; its reply is lost."""


class RetryAfter(Status):
    """How long to wait."""

    retry_after: int | None = Field(default=1, ge=0, le=3600)
    """Seconds that the header of that name says; None: no header."""


class Context(Document):
    """The limit that the engine claims to have."""

    context_length: int = Field(default=8, ge=1)


class Redirect(Status):
    """Where to."""

    location: str = Field(default="http://elsewhere.invalid/v1/chat/completions", min_length=1)


def is_generate(asked: Asked) -> bool:
    """`/generate`, whose errors are spelled otherwise than those of the OpenAI routes."""
    return asked.path.partition("?")[0].endswith("/generate")


def refusal(asked: Asked, status: int, message: str, type_: str) -> Answer:
    """An error as SGLang spells it: `/generate` wraps what its request is refused with, the OpenAI routes do not."""
    if is_generate(asked) and status == 400:
        body: dict[str, Any] = {"error": {"message": message}}
    else:
        body = {"object": "error", "message": message, "type": type_, "param": None, "code": status}
    return Answer(status, json.dumps(body).encode(), _JSON)


def replaced(answer: Callable[[Asked], Answer], *, delivered: bool) -> Strike:
    """The answer in place of the engine's; `delivered`: which it gives all the same."""
    if not delivered:
        return Strike(deliveries=0, instead=answer)
    seen: list[Asked] = []

    def ask(asked: Asked) -> Asked:
        seen.append(asked)
        return asked

    return Strike(ask=ask, reply=lambda _: answer(seen[-1]))


def _status(
    code: int,
    statement: str,
    reason: str,
    answer: Callable[[Asked], Answer],
    params: type[Status] | type[GatewayStatus] = Status,
) -> None:
    def effect(params: Status | GatewayStatus, random: Random) -> Strike:
        return replaced(answer, delivered=params.delivered)

    effect.__doc__ = statement
    _status_kind(f"http-{code}", verdict="reject", reason=reason, params=params)(effect)


def _plain(code: int, body: str, headers: tuple[tuple[str, str], ...] = _TEXT) -> Callable[[Asked], Answer]:
    return lambda asked: Answer(code, body.encode(), headers)


def _sglang(code: int, message: str, type_: str) -> Callable[[Asked], Answer]:
    return lambda asked: refusal(asked, code, message, type_)


_NO_REPLY = "nothing was answered that could be trained on; who asked is told the status and may ask again"
_HIS_FAULT = "the request itself is refused: asking the same again is refused again, and nothing was generated"


@_status_kind("http-400-context", verdict="reject", reason=_HIS_FAULT, params=Context)
def _context(params: Context, random: Random) -> Strike:
    """The prompt is said to be longer than the model's context: status 400 in the release's words."""

    def answer(asked: Asked) -> Answer:
        limit = params.context_length
        message = f"The input ({limit + 1} tokens) is longer than the model's context length ({limit} tokens)."
        return refusal(asked, 400, message, "BadRequestError")

    return replaced(answer, delivered=False)


_status(401, "The key is refused: status 401.", _HIS_FAULT, _plain(401, '{"error":"Unauthorized"}', _JSON))
_status(404, "The route is not there: status 404.", _HIS_FAULT, _plain(404, '{"detail":"Not Found"}', _JSON))
_status(408, "A server on the way gave up waiting: status 408.", _NO_REPLY, _plain(408, "Request Timeout"))
_status(413, "The body is too large for a server on the way: status 413.", _HIS_FAULT, _plain(413, "Payload Too Large"))
_status(422, "The body does not fit the server's schema: status 422.", _HIS_FAULT, _plain(422, '{"detail":[]}', _JSON))


@_status_kind("http-429", verdict="reject", reason=_NO_REPLY, params=RetryAfter)
def _too_many(params: RetryAfter, random: Random) -> Strike:
    """Too many requests: status 429, with a `Retry-After` header that reaches who asked."""
    after = () if params.retry_after is None else (("retry-after", str(params.retry_after)),)
    return replaced(_plain(429, '{"error":"Too Many Requests"}', (*_JSON, *after)), delivered=params.delivered)


def _crashed(asked: Asked) -> Answer:
    if is_generate(asked):
        return Answer(500, b"Internal Server Error", _TEXT)
    return refusal(asked, 500, "Internal server error: CUDA error: unspecified launch failure", "InternalServerError")


_status(500, "The engine falls over the request: status 500.", _NO_REPLY, _crashed, GatewayStatus)
_status(502, "A router lost the engine: status 502.", _NO_REPLY, _plain(502, "<h1>Bad Gateway</h1>", _HTML))
_status(
    503,
    "The engine takes no requests: status 503.",
    _NO_REPLY,
    _sglang(503, "The request queue is full.", "503"),
)
_status(
    504,
    "A router gave up waiting for the engine, which generates all the same: status 504.",
    _NO_REPLY,
    _plain(504, "<h1>Gateway Time-out</h1>", _HTML),
    GatewayStatus,
)


@_status_kind(
    "http-redirect",
    verdict="reject",
    reason="who follows it goes round the session server: what it then samples is recorded by nobody",
    params=Redirect,
)
def _redirect(params: Redirect, random: Random) -> Strike:
    """The engine is said to be elsewhere: status 307 with a `Location`."""
    return replaced(_plain(307, "", (("location", params.location),)), delivered=params.delivered)


def whole(answer: Answer) -> Answer:
    """The answer, if it is a reply; `CannotStrike` where the engine refused."""
    if answer.status != 200:
        raise CannotStrike(f"the engine answered with status {answer.status}")
    return answer


def _garbled(
    name: str, statement: str, alter: Callable[[Answer], Answer], *, verdict: Verdict = "reject", reason: str
) -> None:
    def effect(params: Document, random: Random) -> Strike:
        return Strike(reply=lambda answer: alter(whole(answer)))

    effect.__doc__ = statement
    _body_kind(f"http-{name}", verdict=verdict, reason=reason)(effect)


def _with(answer: Answer, body: bytes, *headers: tuple[str, str]) -> Answer:
    named = {name for name, _ in headers}
    return Answer(answer.status, body, (*(h for h in answer.headers if h[0].lower() not in named), *headers))


_NOT_JSON = "status 200 promises a reply, and there is none in the body; the bytes are not what the engine made"
_SAID = "content-type", "application/json"

_garbled(
    "html",
    "Status 200 and a page of HTML, as from a login or error page on the way.",
    lambda answer: _with(answer, b"<!doctype html><title>Sign in</title>", *_HTML),
    reason=_NOT_JSON,
)
_garbled(
    "not-json",
    "Status 200 and a body that calls itself JSON and is none.",
    lambda answer: _with(answer, b"{'id': None}"),
    reason=_NOT_JSON,
)
_garbled("empty", "Status 200 and no body.", lambda answer: _with(answer, b""), reason=_NOT_JSON)
_garbled(
    "half",
    "The JSON ends in its middle, and its length is announced as what there is.",
    lambda answer: _with(answer, answer.body[: len(answer.body) // 2]),
    reason=_NOT_JSON,
)
_garbled("twice", "The JSON stands in the body twice.", lambda answer: _with(answer, answer.body * 2), reason=_NOT_JSON)
_garbled(
    "utf16",
    "The JSON is spelled in UTF-16.",
    lambda answer: _with(answer, answer.body.decode().encode("utf-16"), _SAID),
    reason="JSON between systems is UTF-8 (RFC 8259, 8.1)",
)
_garbled(
    "error-200",
    "Status 200 and an error object in the body.",
    lambda answer: _with(answer, b'{"object":"error","message":"Internal server error","type":"InternalServerError"}'),
    reason=_NOT_JSON,
)
_garbled(
    "stream",
    "Server-sent events where a whole reply was asked for.",
    lambda answer: _with(
        answer, b"data: " + answer.body + b"\n\ndata: [DONE]\n\n", ("content-type", "text/event-stream")
    ),
    reason=_NOT_JSON,
)
_garbled(
    "wrong-type",
    "The reply is right and its content type says `text/plain`.",
    lambda answer: _with(answer, answer.body, *_TEXT),
    verdict="tolerate",
    reason="the body is the engine's, byte by byte; what it is called changes nothing in it",
)
_garbled(
    "no-type",
    "The reply is right and has no content type.",
    lambda answer: Answer(answer.status, answer.body, tuple(h for h in answer.headers if h[0] != "content-type")),
    verdict="tolerate",
    reason="the body is the engine's, byte by byte",
)
_garbled(
    "gzip",
    "The reply comes compressed, as a proxy on the way may do.",
    lambda answer: _with(answer, gzip.compress(answer.body, mtime=0), ("content-encoding", "gzip")),
    verdict="tolerate",
    reason="a coding of the transfer, which any HTTP client undoes",
)
_garbled(
    "false-gzip",
    "The reply says it is compressed, and is not.",
    lambda answer: _with(answer, answer.body, ("content-encoding", "gzip")),
    reason="the body cannot be decoded as it says",
)
