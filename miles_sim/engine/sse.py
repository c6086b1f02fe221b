"""Server-sent events as SGLang writes them."""

import json
from http import HTTPStatus
from typing import Any

import orjson

from miles_sim.engine.errors import RequestError

DONE = b"data: [DONE]\n\n"


class StreamCutError(ConnectionError):
    """The release's own fault ends the stream here: no last piece, no `[DONE]`, the connection is closed."""


def event(document: Any, *, name: str | None = None) -> bytes:
    """One event of compact JSON."""
    head = b"" if name is None else f"event: {name}\n".encode()
    return head + b"data: " + orjson.dumps(document) + b"\n\n"


def error_event(message: str, *, kind: str = "BadRequestError", status: int = 400) -> bytes:
    """An error within a stream of chat or completions (serving_base.py `create_streaming_error_response`)."""
    body = RequestError(message, kind=kind, status=status).body
    return b"data: " + json.dumps({"error": body}).encode() + b"\n\n"


def abort_event(reason: dict[str, Any]) -> bytes:
    """For a request that the server gave up; without a status it says 500."""
    status = HTTPStatus(reason.get("status_code", 500))
    message = reason.get("message", "Generation aborted.")
    return error_event(message, kind=status.name, status=status.value)
