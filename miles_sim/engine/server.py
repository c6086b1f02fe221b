"""The engine's HTTP face: an ASGI application with SGLang's routes, status codes and error bodies."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from miles_sim.engine.errors import RequestError
from miles_sim.transport import ASGIApp

if TYPE_CHECKING:
    from miles_sim.engine.engine import Engine

Handler = Callable[[Request], Awaitable[Response]]


def application(engine: "Engine") -> ASGIApp:
    """The ASGI application of this engine; `requests_open` counts what it has under way."""

    async def chat(request: Request) -> Response:
        body = await request.body()
        try:
            answer = await engine.chat(body, content_type=request.headers.get("content-type", ""))
        except RequestError as error:
            return _json(orjson.dumps(error.body), error.status)
        return _json(answer)

    async def health(request: Request) -> Response:
        return Response(status_code=200)

    routed = Starlette(
        routes=[
            _route("/v1/chat/completions", chat, "POST"),
            _route("/health", health, "GET"),
        ],
        exception_handlers={HTTPException: _detail},
    )

    async def app(
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        counts = scope["type"] == "http"
        engine.requests_open += counts
        try:
            await routed(scope, receive, send)
        finally:
            engine.requests_open -= counts

    return app


def _route(path: str, handler: Handler, method: str) -> Route:
    """A route for exactly one method: FastAPI, unlike Starlette, answers HEAD on a GET route with 405."""
    route = Route(path, handler, methods=[method])
    route.methods = {method}
    return route


async def _detail(request: Request, error: Exception) -> Response:
    """404 and 405 as FastAPI words them."""
    if not isinstance(error, HTTPException):
        raise error
    headers = getattr(error, "headers", None)
    return _json(orjson.dumps({"detail": error.detail}), error.status_code, headers)


def _json(body: bytes, status: int = 200, headers: Any = None) -> Response:
    return Response(body, status_code=status, headers=headers, media_type="application/json")
