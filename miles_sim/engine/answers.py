"""HTTP answers, JSON spelled as orjson spells it."""

from typing import Any

import orjson
from starlette.responses import Response

from miles_sim.engine.errors import RequestError


def answer(document: Any, status: int = 200) -> Response:
    """`document` as JSON."""
    return Response(orjson.dumps(document), status_code=status, media_type="application/json")


def refusal(error: RequestError) -> Response:
    """The error's own body and status; without a body, the web framework's bare words."""
    if not error.body:
        return Response("Internal Server Error", status_code=error.status, media_type="text/plain")
    return answer(error.body, error.status)


def done(success: bool, message: str, **more: Any) -> Response:
    """What SGLang's control plane says of an operation: 200, or 400 where it failed."""
    return answer({"success": success, "message": message, **more}, 200 if success else 400)


def plain(text: str, status: int = 200) -> Response:
    """Text without a content type, as SGLang's bare `Response`."""
    return Response(text, status_code=status)
