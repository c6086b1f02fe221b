"""The way to an engine: how long it is waited for."""

import httpx
import pytest

from miles_sim.rollout.errors import UpstreamTransportError
from miles_sim.rollout.session.upstream import Call, Upstream


class Silent(httpx.AsyncBaseTransport):
    """An engine that never answers, where time is free: who has a read timeout gets it at once."""

    def __init__(self) -> None:
        self.timeouts: list[dict[str, float]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.timeouts.append(request.extensions["timeout"])
        raise httpx.ReadTimeout("", request=request)


async def test_a_silent_engine_is_given_up_by_the_read_timeout_of_the_request() -> None:
    silent = Silent()
    upstream = Upstream("http://engine", request_timeout=5.0, transport=silent)
    with pytest.raises(UpstreamTransportError, match="engine: no answer within request_timeout=5 s"):
        await upstream.send(Call("POST", "generate", "", [], b"{}"), unless=())
    assert [timeout["read"] for timeout in silent.timeouts] == [5.0]
