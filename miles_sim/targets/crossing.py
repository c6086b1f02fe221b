"""What crosses between session server and driver: kept as it was sent, and broken on the way where that is asked."""

import base64

import httpx

from miles_sim.messages import WholeResponse, goal_of, raw_headers
from miles_sim.targets.garble import garbled

_OF_THE_BODY = frozenset({b"content-length", b"content-encoding"})
"""Headers that tell how a body was sent, not what it holds."""


class Crossing(httpx.AsyncBaseTransport):
    """One driver's way to its session server; `way` stays its owner's to close."""

    def __init__(self, way: httpx.AsyncBaseTransport, garble: str | None) -> None:
        self._way = way
        self._garble = garble
        self.payload: str | None = None
        """The latest samples as they were sent, base64."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._way.handle_async_request(request)
        if request.method != "POST" or not goal_of(request).path.endswith("/samples") or response.status_code != 200:
            return response
        content = await response.aread()
        await response.aclose()
        self.payload = base64.b64encode(content).decode()
        given = content if self._garble is None else garbled(self._garble, content)
        headers = [(name, value) for name, value in raw_headers(response) if name.lower() not in _OF_THE_BODY]
        return WholeResponse(response.status_code, [*headers, (b"Content-Length", b"%d" % len(given))], given)

    async def aclose(self) -> None:
        """Nothing of its own to close."""
