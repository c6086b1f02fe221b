"""HTTP within this process: httpx's types, less what no play needs and every request pays for."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import httpx

_encoded = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_url = lru_cache(maxsize=256)(httpx.URL)
_FIXED = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "host", "transfer-encoding", "user-agent"}
)
"""Headers that the client sets: who sets them himself has httpx merge them."""


class _Whole:
    """A message whose body is there."""

    _whole: bytes

    @property
    def content(self) -> bytes:
        return self._whole

    def read(self) -> bytes:
        return self._whole

    async def aread(self) -> bytes:
        return self._whole


class WholeResponse(_Whole, httpx.Response):
    """A response whose body is there: it is neither decoded nor copied together.

    `headers`: as they came, none of them a content encoding.
    """

    def __init__(self, status_code: int, headers: Any, body: bytes, request: httpx.Request | None = None) -> None:
        super().__init__(status_code, headers=headers, stream=httpx.ByteStream(body), request=request)
        self._whole = body

    async def aread(self) -> bytes:
        if not self.is_closed:
            await self.aclose()
        return self._whole


def response(
    status_code: int,
    headers: Sequence[tuple[Any, Any]] | httpx.Headers,
    body: bytes,
    request: httpx.Request | None = None,
) -> httpx.Response:
    """The response of that body. A body that is encoded is decoded by who reads it."""
    told = headers if isinstance(headers, httpx.Headers) else httpx.Headers(headers)
    if "content-encoding" in told:
        return httpx.Response(status_code, headers=told, stream=httpx.ByteStream(body), request=request)
    return WholeResponse(status_code, told, body, request)


def request(
    method: str,
    url: httpx.URL,
    headers: Sequence[tuple[Any, Any]],
    body: bytes,
    extensions: Mapping[str, Any] | None = None,
) -> httpx.Request:
    """The request of that body. `headers`: all that are sent, but for the body's length."""
    if body or method in ("POST", "PUT", "PATCH"):
        headers = [*headers, (b"Content-Length", b"%d" % len(body))]
    return _WholeRequest(method, url, headers, body, extensions)


class _WholeRequest(_Whole, httpx.Request):
    def __init__(self, method: str, url: httpx.URL, headers: Any, body: bytes, extensions: Any) -> None:
        super().__init__(method, url, headers=headers, stream=httpx.ByteStream(body), extensions=extensions)
        self._whole = body


class PlainClient(httpx.AsyncClient):
    """A client for one transport, which gets each request as it is asked for.

    It follows no redirects, keeps no cookies, authenticates nowhere, and logs nothing. What is asked of it beyond
    bodies, headers and timeouts, httpx does in its own way.
    """

    def __init__(self, way: httpx.AsyncBaseTransport, *, timeout: float | None = None) -> None:
        super().__init__(transport=way, timeout=timeout, trust_env=False, verify=False)
        self._way = way
        self._default = self.headers.raw

    def build_request(
        self,
        method: str,
        url: httpx.URL | str,
        *,
        content: Any = None,
        data: Any = None,
        files: Any = None,
        json: Any = None,
        params: Any = None,
        headers: Any = None,
        cookies: Any = None,
        timeout: Any = httpx.USE_CLIENT_DEFAULT,
        extensions: Any = None,
    ) -> httpx.Request:
        body = content if json is None else _encoded(json).encode()
        own = {} if headers is None else headers
        apart = any((data, files, params, cookies, extensions, json is not None and own)) or not isinstance(own, dict)
        if apart or not isinstance(body, bytes | None) or not _FIXED.isdisjoint(map(str.lower, own)):
            return super().build_request(
                method,
                url,
                content=content,
                data=data,
                files=files,
                json=json,
                params=params,
                headers=headers,
                cookies=cookies,
                timeout=timeout,
                extensions=extensions,
            )
        parsed = _url(url) if isinstance(url, str) else url
        sent = [(b"Host", parsed.netloc), *self._default, *own.items()]
        if json is not None:
            sent.append((b"Content-Type", b"application/json"))
        patience = self.timeout if timeout is httpx.USE_CLIENT_DEFAULT else httpx.Timeout(timeout)
        return request(method, parsed, sent, body or b"", {"timeout": patience.as_dict()})

    async def send(
        self,
        request: httpx.Request,
        *,
        stream: bool = False,
        auth: Any = httpx.USE_CLIENT_DEFAULT,
        follow_redirects: Any = httpx.USE_CLIENT_DEFAULT,
    ) -> httpx.Response:
        if stream or auth is not httpx.USE_CLIENT_DEFAULT or follow_redirects is not httpx.USE_CLIENT_DEFAULT:
            return await super().send(request, stream=stream, auth=auth, follow_redirects=follow_redirects)
        answer = await self._way.handle_async_request(request)
        answer.request = request
        try:
            await answer.aread()
        except BaseException:
            await answer.aclose()
            raise
        return answer
