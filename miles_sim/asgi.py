"""An ASGI app of this process as an httpx transport."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx

from miles_sim.messages import goal_of, raw_headers, response

Message = MutableMapping[str, Any]
ASGIApp = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]

_CLIENT = ("127.0.0.1", 123)


class AppTransport(httpx.AsyncBaseTransport):
    """Hands each request to `app`; an app that raises before it answers has answered 500, as a server makes of it.

    The app runs in the task of who asks, and is cancelled with it. As httpx's own transport for apps, at a tenth of
    its cost.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        goal = goal_of(request)
        exchange = _Exchange(await request.aread())
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "headers": [(name.lower(), value) for name, value in raw_headers(request)],
            "scheme": goal.scheme,
            "path": goal.path,
            "raw_path": goal.raw_path.partition(b"?")[0],
            "query_string": goal.query,
            "server": (goal.host, goal.port),
            "client": _CLIENT,
            "root_path": "",
        }
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception:
            exchange.broken_off()
        return exchange.answer(with_body=request.method != "HEAD")


class _Exchange:
    """One request and what the app says to it."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._over = False
        self._ended: asyncio.Event | None = None
        self._status: int | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []

    async def receive(self) -> Message:
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        if not self._over:  # few apps wait for the end of what they are about to say
            self._ended = self._ended or asyncio.Event()
            await self._ended.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            if self._status is not None:
                raise RuntimeError("http.response.start: sent before")
            self._status, self._headers = message["status"], list(message.get("headers", ()))
        elif kind == "http.response.body":
            if self._status is None or self._over:
                raise RuntimeError(f"http.response.body: {'sent after the last part' if self._over else 'not begun'}")
            self._parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                self._end()

    def broken_off(self) -> None:
        """The app raised. What it had begun to say stands."""
        if self._status is None:
            self._status = 500
        self._end()

    def answer(self, *, with_body: bool) -> httpx.Response:
        if self._status is None or not self._over:
            raise RuntimeError("app: ended before its response did")
        return response(self._status, self._headers, b"".join(self._parts) if with_body else b"")

    def _end(self) -> None:
        self._over = True
        if self._ended is not None:
            self._ended.set()
