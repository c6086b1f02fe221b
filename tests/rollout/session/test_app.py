"""Routes that are found without searching: the same answers as Starlette's."""

from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from miles_sim.rollout.errors import RolloutError
from miles_sim.rollout.session.app import SessionApp


async def show(request: Request) -> Response:
    if request.query_params.get("fail"):
        raise RolloutError("refused") if request.query_params["fail"] == "ours" else KeyError("broken")
    return Response(f"{request.method} {request['path']} {sorted(request.path_params.items())}")


async def refused(request: Request, error: Exception) -> Response:
    return Response(str(error), status_code=422)


async def broken(request: Request, error: Exception) -> Response:
    return Response(repr(error), status_code=500)


ROUTES = [
    Route("/sessions/{id}/samples", show, methods=["POST"]),
    Route("/sessions", show, methods=["POST"]),
    Route("/sessions/{id}", show, methods=["GET", "DELETE"]),
    Route("/health", show, methods=["GET"]),
    Route("/sessions/{id}/{path:path}", show, methods=["GET", "POST"]),
]
ASKED = [
    ("POST", "/sessions"),
    ("POST", "/sessions/a/samples"),
    ("GET", "/sessions/a/samples"),
    ("POST", "/sessions/a/b/samples"),
    ("POST", "/sessions/a%2Fb/samples"),
    ("POST", "/sessions//samples"),
    ("GET", "/sessions/a"),
    ("HEAD", "/sessions/a"),
    ("PUT", "/sessions/a"),
    ("GET", "/sessions"),
    ("GET", "/sessions/"),
    ("GET", "/sessionsa"),
    ("POST", "/x/sessions/a/samples"),
    ("GET", "/health"),
    ("GET", "/sessions/%7Bid%7D"),
    ("GET", "/sessions/a/%7Bpath:path%7D"),
    ("GET", "/nowhere"),
    ("POST", "/sessions/a/samples?fail=ours"),
    ("POST", "/sessions/a/samples?fail=other"),
]


async def answered(app: Any, method: str, path: str) -> tuple[int, str, list[tuple[str, str]]]:
    way = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=way, base_url="http://sessions") as client:
        response = await client.request(method, path)
    return response.status_code, response.text, sorted(response.headers.items())


@pytest.mark.parametrize(("method", "path"), ASKED)
async def test_an_answer_is_that_of_starlette(method: str, path: str) -> None:
    theirs = Starlette(routes=ROUTES, exception_handlers={RolloutError: refused, Exception: broken})
    ours = SessionApp(ROUTES, refused=refused, broken=broken)
    assert await answered(ours, method, path) == await answered(theirs, method, path)


async def test_an_error_that_is_not_ours_reaches_the_server_too() -> None:
    app = SessionApp(ROUTES, refused=refused, broken=broken)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sessions") as client:
        with pytest.raises(KeyError, match="broken"):
            await client.post("/sessions/a/samples?fail=other")
