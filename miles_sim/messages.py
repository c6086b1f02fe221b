"""HTTP messages within this process: httpx's types with their body there, all else made when it is looked at."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import httpx

Pairs = Sequence[tuple[bytes, bytes]]
"""Headers as they are sent."""

_SIMPLE = re.compile(r"http://(?!xn--)([a-z][a-z0-9-]*)((?:/[A-Za-z0-9_-]+)+)")
"""URLs that httpx would leave as they are: those of the hosts of this process."""


class Goal(NamedTuple):
    """Where a request goes."""

    scheme: str
    host: str
    port: int | None
    """None: the scheme's own."""
    path: str
    """Decoded."""
    raw_path: bytes
    """With the query."""
    query: bytes
    netloc: bytes


class _Lazy:
    """A message some of whose parts are made at the first look."""

    _whole: bytes
    pairs: Pairs

    def _made(self, name: str) -> Any:
        if name == "headers":
            return httpx.Headers(self.pairs)
        if name == "stream":
            return httpx.ByteStream(self._whole)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __getattr__(self, name: str) -> Any:
        value = self._made(name)
        setattr(self, name, value)
        return value

    @property
    def content(self) -> bytes:
        return self._whole

    def read(self) -> bytes:
        return self._whole


class WholeRequest(_Lazy, httpx.Request):
    """A request whose body is there. `pairs`: all headers that are sent."""

    def __init__(
        self, method: str, goal: Goal, pairs: Pairs, body: bytes, extensions: Mapping[str, Any] | None = None
    ) -> None:
        self.method = method.upper()
        self.goal = goal
        self.pairs = pairs
        self.extensions = {} if extensions is None else dict(extensions)
        self._whole = body

    def _made(self, name: str) -> Any:
        if name == "url":
            goal = self.goal
            return httpx.URL(f"{goal.scheme}://{goal.netloc.decode()}{goal.raw_path.decode()}")
        return super()._made(name)

    async def aread(self) -> bytes:
        return self._whole


class WholeResponse(_Lazy, httpx.Response):
    """A response whose body is there: it is neither decoded nor copied together.

    `pairs`: headers as they came, none of them a content encoding.
    """

    next_request: httpx.Request | None = None
    is_closed = False
    is_stream_consumed = False
    default_encoding = "utf-8"
    _num_bytes_downloaded = 0

    def __init__(self, status_code: int, pairs: Pairs, body: bytes, request: httpx.Request | None = None) -> None:
        self.status_code = status_code
        self.pairs = pairs
        self._request = request
        self._whole = body

    def _made(self, name: str) -> Any:
        if name == "extensions":
            return {}
        return [] if name == "history" else super()._made(name)

    @property
    def text(self) -> str:
        if any(b"charset" in value for _, value in raw_headers(self)):
            return super().text
        return self._whole.decode(errors="replace")

    async def aread(self) -> bytes:
        if not self.is_closed:
            await self.aclose()
        return self._whole

    async def aclose(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            if "stream" in vars(self):
                await self.stream.aclose()  # type: ignore[union-attr]  # a client's, around the one made here


def response(status_code: int, pairs: Pairs, body: bytes, request: httpx.Request | None = None) -> httpx.Response:
    """The response of that body. A body that is encoded is decoded by who reads it."""
    if any(name.lower() == b"content-encoding" for name, _ in pairs):
        return httpx.Response(status_code, headers=list(pairs), stream=httpx.ByteStream(body), request=request)
    return WholeResponse(status_code, pairs, body, request)


def request(
    method: str, goal: Goal, pairs: Pairs, body: bytes, extensions: Mapping[str, Any] | None = None
) -> httpx.Request:
    """The request of that body. `pairs`: all headers that are sent, but for the body's length."""
    if body or method in ("POST", "PUT", "PATCH"):
        pairs = [*pairs, (b"Content-Length", b"%d" % len(body))]
    return WholeRequest(method, goal, pairs, body, extensions)


def raw_headers(message: httpx.Request | httpx.Response) -> Pairs:
    """Its headers as they are sent; httpx's own object is not made for it."""
    own = vars(message)
    pairs: Pairs = own["headers"].raw if "headers" in own else own["pairs"]
    return pairs


def header_items(message: httpx.Request | httpx.Response) -> list[tuple[str, str]]:
    """Its headers as text, names in lower case; each byte is one character, so that `encoded` gives them back."""
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in raw_headers(message)]


def encoded(items: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Headers of `header_items` as they are sent."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in items]


def goal_of(request: httpx.Request) -> Goal:
    """Where it goes."""
    if isinstance(request, WholeRequest):
        return request.goal
    own = vars(request)
    known: tuple[httpx.URL, Goal] | None = own.get("_goal")
    if known is None or known[0] is not request.url:  # it is asked for at every station of the way
        known = own["_goal"] = request.url, goal_at(request.url)
    return known[1]


def goal_at(url: httpx.URL | str) -> Goal:
    """What a URL names."""
    if isinstance(url, str):
        return _named(url)
    return Goal(url.scheme, url.host, url.port, url.path, url.raw_path, url.query, url.netloc)


@lru_cache(maxsize=256)
def _named(url: str) -> Goal:
    simple = _SIMPLE.fullmatch(url)
    if simple is None:
        return goal_at(httpx.URL(url))
    host, path = simple.groups()
    return Goal("http", host, None, path, path.encode(), b"", host.encode())
