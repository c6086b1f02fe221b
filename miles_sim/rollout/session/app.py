"""A web application that finds the routes of a session without searching, for they are asked all the time."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from miles_sim.rollout.errors import RolloutError

Endpoint = Callable[[Request], Awaitable[Response]]
OnError = Callable[[Request, Exception], Awaitable[Response]]

_SESSION = "/sessions/{id}"


class SessionApp(Starlette):
    """`routes` as Starlette serves them. Those on `/sessions` and `/sessions/{id}` are called straight: middleware and
    routing would cost more than what they do. `refused` answers a `RolloutError`, `broken` any other error, which is
    then raised, so that the server logs it."""

    def __init__(self, routes: Sequence[Route], *, refused: OnError, broken: OnError, **options: Any) -> None:
        handlers = {**options.pop("exception_handlers", {}), RolloutError: refused, Exception: broken}
        super().__init__(routes=routes, exception_handlers=handlers, **options)
        self._refused, self._broken = refused, broken
        self._straight: Mapping[tuple[str, str], Endpoint] = {
            (method, route.path): route.endpoint
            for route in routes
            if ":path" not in route.path
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._found(scope)
        if found is None:
            await super().__call__(scope, receive, send)
            return
        endpoint, parameters = found
        request = Request({**scope, "path_params": parameters}, receive, send)
        try:
            response = await endpoint(request)
        except RolloutError as error:
            response = await self._refused(request, error)
        except Exception as error:
            response = await self._broken(request, error)
            await response(scope, receive, send)
            raise
        await response(scope, receive, send)

    def _found(self, scope: Scope) -> tuple[Endpoint, dict[str, str]] | None:
        """The route of its very path, and the session in it; None: Starlette is to search."""
        if scope["type"] != "http" or scope.get("root_path"):
            return None
        _, _, path = scope["path"].partition("/sessions")
        if not path:
            endpoint, parameters = self._straight.get((scope["method"], scope["path"])), {}
        else:
            id, slash, rest = path[1:].partition("/")
            whole = scope["path"] == f"/sessions/{id}{slash}{rest}"
            endpoint = self._straight.get((scope["method"], f"{_SESSION}{slash}{rest}")) if whole and id else None
            parameters = {"id": id}
        return None if endpoint is None else (endpoint, parameters)
