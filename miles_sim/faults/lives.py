"""What befalls the other side of an exchange, carried out by its own control endpoints."""

import httpx
import orjson

from miles_sim.faults.strike import Life

_ABORT_ALL = ("/abort_request", b'{"abort_all": true}')
_FLUSH = ("/flush_cache", b"")


class Lives:
    """Makes things befall the engine at `engine_url`, and sessions before it. No fault is on `way`."""

    def __init__(self, way: httpx.AsyncBaseTransport, engine_url: str) -> None:
        self._way = way
        self._engine_url = engine_url.rstrip("/")
        self.dead = False
        """The engine refuses every connection."""

    async def befall(self, life: Life, request: httpx.Request) -> None:
        """`request` is the struck one; a session that is forgotten is the one that it goes to."""
        if life.operation in ("die", "revive"):
            self.dead = life.operation == "die"
        elif life.operation == "forget":
            session = request.url.path.partition("/v1/")[0].removesuffix("/samples")
            await self._send("DELETE", request.url.copy_with(raw_path=session.encode()), b"")
        elif life.operation == "update_weights":
            asked = {"new_version": life.weight_version or "1", "abort_all_requests": False}
            await self._post("/update_weight_version", orjson.dumps(asked))
        else:  # a restart: nothing is under way any more, and nothing is cached
            commands = {"flush_cache": (_FLUSH,), "abort_all": (_ABORT_ALL,), "restart": (_ABORT_ALL, _FLUSH)}
            for path, body in commands[life.operation]:
                await self._post(path, body)

    async def _post(self, path: str, body: bytes) -> None:
        await self._send("POST", httpx.URL(self._engine_url + path), body)

    async def _send(self, method: str, url: httpx.URL, body: bytes) -> None:
        sent = httpx.Request(method, url, content=body, headers={"content-type": "application/json"})
        response = await self._way.handle_async_request(sent)
        await response.aread()
        await response.aclose()
