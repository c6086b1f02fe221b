"""The engine's HTTP face: an ASGI application with the release's routes, status codes and error bodies."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from miles_sim.engine.answers import answer, refusal
from miles_sim.engine.body import Handler
from miles_sim.engine.control import Control
from miles_sim.engine.errors import NotModelledError, RequestError
from miles_sim.engine.info import Info
from miles_sim.engine.metrics import CONTENT_TYPE, exposition
from miles_sim.engine.weights import Weights
from miles_sim.transport import ASGIApp

if TYPE_CHECKING:
    from miles_sim.engine.engine import Engine
    from miles_sim.engine.serving import Said


_GENERATING = ("/v1/chat/completions", "/generate", "/v1/completions")


def application(engine: "Engine") -> ASGIApp:
    """The ASGI application of this engine; `requests_open` counts what it has under way.

    A path that the release lacks is a 404, one that it has and this engine does not model a 501 that names it.
    """
    handlers = {
        **_generation(engine),
        **Info(engine).handlers(),
        **Control(engine).handlers(),
        **Weights(engine).handlers(),
    }
    routes = [_route(path, handlers.get(path, _unmodelled), methods) for path, methods in engine.release.routes.items()]
    if engine.settings.metrics:
        routes.append(_route("/metrics", _metrics(engine), ("GET",)))
    routes.sort(key=lambda route: route.path not in _GENERATING)  # looked for one by one: the busy ones first
    routed = Starlette(routes=routes, exception_handlers={HTTPException: _detail})

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


def _generation(engine: "Engine") -> dict[str, Handler]:
    async def chat(request: Request) -> Response:
        body = await request.body()
        kind = request.headers.get("content-type", "")
        return _said(await engine.serving.chat(body, content_type=kind, headers=request.headers, gone=gone(request)))

    async def completions(request: Request) -> Response:
        body = await request.body()
        kind = request.headers.get("content-type", "")
        return _said(await engine.serving.completions(body, content_type=kind, gone=gone(request)))

    async def generate(request: Request) -> Response:
        body = await request.body()
        kind = request.headers.get("content-type")
        return _said(await engine.serving.generate(body, content_type=kind, gone=gone(request)))

    return {"/v1/chat/completions": chat, "/v1/completions": completions, "/generate": generate}


def _said(said: "Said") -> Response:
    if isinstance(said, bytes):
        return Response(said, media_type="application/json")
    return StreamingResponse(said, media_type="text/event-stream")


def gone(request: Request) -> Callable[[], Awaitable[None]]:
    """Returns when the client of this request, whose body was read, has hung up."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return watch


def _metrics(engine: "Engine") -> Handler:
    async def metrics(request: Request) -> Response:
        return Response(exposition(engine), media_type=CONTENT_TYPE)

    return metrics


async def _unmodelled(request: Request) -> Response:
    path = request.scope["route"].path if "route" in request.scope else request.url.path
    raise NotModelledError("path", path, "/generate, /v1/completions, /v1/chat/completions and the control plane")


def _route(path: str, handler: Handler, methods: tuple[str, ...]) -> Route:
    """A route for exactly these methods: FastAPI, unlike Starlette, answers HEAD on a GET route with 405."""

    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except RequestError as error:
            return refusal(error)

    route = Route(path, guarded, methods=list(methods))
    route.methods = set(methods)
    return route


async def _detail(request: Request, error: Exception) -> Response:
    """404 and 405 as FastAPI words them."""
    if not isinstance(error, HTTPException):
        raise error
    response = answer({"detail": error.detail}, error.status_code)
    response.headers.update(getattr(error, "headers", None) or {})
    return response
