"""HTTP within this process: a client of httpx's type, less what no play needs and every request pays for."""

import json
from typing import Any

import httpx

from miles_sim import messages

_encoded = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_FIXED = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "host", "transfer-encoding", "user-agent"}
)
"""Headers that the client sets: who sets them himself has httpx merge them."""


class PlainClient(httpx.AsyncClient):
    """A client for one transport, which gets each request as it is asked for.

    It follows no redirects, keeps no cookies, authenticates nowhere, and logs nothing. What is asked of it beyond
    bodies, headers and timeouts, httpx does in its own way.
    """

    def __init__(self, way: httpx.AsyncBaseTransport, *, timeout: float | None = None) -> None:
        super().__init__(transport=way, timeout=timeout, trust_env=False, verify=False)
        self._way = way
        self._default = self.headers.raw
        self._patience = self.timeout.as_dict()

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
        goal = messages.goal_at(url)
        pairs = [(b"Host", goal.netloc), *self._default]
        pairs += [(name.encode("ascii"), value.encode("ascii")) for name, value in own.items()]
        if json is not None:
            pairs.append((b"Content-Type", b"application/json"))
        patience = self._patience if timeout is httpx.USE_CLIENT_DEFAULT else httpx.Timeout(timeout).as_dict()
        return messages.request(method, goal, pairs, body or b"", {"timeout": patience})

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
