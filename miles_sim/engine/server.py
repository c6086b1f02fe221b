"""The engine's HTTP face: an ASGI application with the release's routes, status codes and error bodies."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from miles_sim.engine.answers import answer, refusal
from miles_sim.engine.body import Handler
from miles_sim.engine.control import Control
from miles_sim.engine.errors import NotModelledError, RequestError
from miles_sim.engine.info import Info
from miles_sim.engine.metrics import CONTENT_TYPE, exposition
from miles_sim.engine.serving import FRAMING
from miles_sim.engine.utilities import Utilities
from miles_sim.engine.weights import Weights
from miles_sim.transport import ASGIApp

if TYPE_CHECKING:
    from miles_sim.engine.engine import Engine
    from miles_sim.engine.serving import Said


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


_LOOKED_AT = {name.encode(): name for name in ("content-type", *FRAMING)}
GENERATING = ("/generate", "/v1/completions", "/v1/chat/completions", "/invocations")


def application(engine: "Engine") -> ASGIApp:
    """The ASGI application of this engine; `requests_open` counts what it has under way.

    A path that the release lacks is a 404, one that it has and this engine does not model a 501 that names it.
    """
    generation = _generation(engine)

    @lru_cache  # most engines are never asked for anything but replies
    def routed() -> Starlette:
        return _routed(engine, generation)

    busy = {path: app for path, app in generation.items() if "POST" in engine.release.routes.get(path, ())}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await routed()(scope, receive, send)
            return
        straight = busy.get(scope["path"]) if scope["method"] == "POST" and not scope.get("root_path") else None
        engine.requests_open += 1
        try:
            await (straight or routed())(scope, receive, send)
        finally:
            engine.requests_open -= 1

    return app


def _routed(engine: "Engine", generation: Mapping[str, ASGIApp]) -> Starlette:
    """Every route of the release."""
    handlers = plane(engine)
    routes = [
        Route(path, generation[path], methods=methods)
        if path in generation
        else _route(path, handlers.get(path, _unmodelled), methods)
        for path, methods in engine.release.routes.items()
    ]
    if engine.settings.metrics:
        routes.append(_route("/metrics", _metrics(engine), ("GET",)))
    return Starlette(routes=routes, exception_handlers={HTTPException: _detail})


def plane(engine: "Engine") -> dict[str, Handler]:
    """Handlers of what does not generate, by path, for all releases."""
    faces = Info(engine), Control(engine), Weights(engine), Utilities(engine)
    return {path: handler for face in faces for path, handler in face.handlers().items()}


def _generation(engine: "Engine") -> dict[str, ASGIApp]:
    """The endpoints that generate, by path. They answer a POST without the framework's routing and request objects,
    which cost more than all the thinking of a short reply."""

    def chat(asked: _Arrived) -> Awaitable["Said"]:
        kind = asked.headers.get("content-type", "")
        return engine.serving.chat(asked.body, content_type=kind, headers=asked.headers, gone=asked.gone)

    def invocations(asked: _Arrived) -> Awaitable["Said"]:
        """Another name for chat, which does not look at the content type."""
        return engine.serving.chat(asked.body, content_type="application/json", headers=asked.headers, gone=asked.gone)

    def completions(asked: _Arrived) -> Awaitable["Said"]:
        kind = asked.headers.get("content-type", "")
        return engine.serving.completions(asked.body, content_type=kind, gone=asked.gone)

    def generate(asked: _Arrived) -> Awaitable["Said"]:
        kind = asked.headers.get("content-type")
        return engine.serving.generate(asked.body, content_type=kind, gone=asked.gone)

    return {
        "/v1/chat/completions": _Direct(chat),
        "/invocations": _Direct(invocations),
        "/v1/completions": _Direct(completions),
        "/generate": _Direct(generate),
    }


class _Arrived:
    """One request, whole."""

    __slots__ = ("_receive", "body", "headers")

    def __init__(self, scope: Scope, receive: Receive, body: bytes) -> None:
        self._receive = receive
        self.body = body
        self.headers = {
            _LOOKED_AT[name]: value.decode("latin-1")
            for name, value in reversed(scope["headers"])  # of several with one name the first
            if name in _LOOKED_AT
        }

    async def gone(self) -> None:
        """Returns when its client has hung up."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class _Direct:
    """An ASGI application; a plain function would be an endpoint of the framework's own kind to its routes."""

    def __init__(self, handler: Callable[[_Arrived], Awaitable["Said"]]) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: Response
        try:
            said = await self._handler(_Arrived(scope, receive, await _body(receive)))
        except RequestError as error:
            response = refusal(error)
        else:
            if isinstance(said, bytes):
                # Others think first: apart, thinking and sending each find the processor's caches warm.
                await asyncio.sleep(0)
                await _send_json(said, send)
                return
            response = StreamingResponse(said, media_type="text/event-stream")
        await response(scope, receive, send)


async def _body(receive: Receive) -> bytes:
    """All of it; `ClientDisconnect` where it breaks off."""
    pieces = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _send_json(body: bytes, send: Send) -> None:
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


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
    for name, value in (getattr(error, "headers", None) or {}).items():
        response.headers[name] = ", ".join(sorted(value.split(", ")))  # methods come as a set, in any order
    return response
