"""One chat request of the agent and what came of it."""

from dataclasses import dataclass, replace

import httpx
import orjson

from miles_sim.agent.conversation import Message
from miles_sim.messages import Pairs, raw_headers

RETRIED = frozenset({0, 408, 409, 429})
"""Statuses below 500 after which an agent with `Plan.retries` asks again; 0 where the transport failed."""


@dataclass(frozen=True)
class Reply:
    """What a request was answered."""

    status: int
    """0 where the transport failed."""
    text: str
    id: str | None = None
    finish_reason: str | None = None
    message: Message | None = None
    failed: tuple[int, ...] = ()
    """Statuses of the attempts before it."""
    doubled: tuple[str, ...] = ()
    """Headers that stand more than once, and may not."""

    @property
    def retried(self) -> bool:
        """Worth asking again."""
        return self.status in RETRIED or self.status >= 500


_SINGLE = ("connection", "content-length", "content-type", "date", "server", "transfer-encoding")
"""Headers of which a reply has one at most: clients that are strict (aiohttp's is) take it for broken."""

CANCELLED = Reply(0, "cancelled")


class Exchange:
    """Posts bodies to `url`, none of which it reads."""

    def __init__(self, client: httpx.AsyncClient, url: str, retries: int) -> None:
        self._client, self._url, self._retries = client, url, retries

    async def post(self, body: bytes) -> Reply:
        """The reply, after as many attempts as it takes or there may be."""
        failed: tuple[int, ...] = ()
        while True:
            reply = await self.once(body)
            if not reply.retried or len(failed) == self._retries:
                return replace(reply, failed=failed) if failed else reply
            failed = (*failed, reply.status)

    async def once(self, body: bytes) -> Reply:
        """The reply to the only attempt."""
        try:
            response = await self._client.post(self._url, content=body, headers={"content-type": "application/json"})
        except httpx.RequestError as error:
            return Reply(0, f"{type(error).__name__}: {error}")
        reply, doubled = _read(response), _doubled(raw_headers(response))
        return replace(reply, doubled=doubled) if doubled else reply


def _doubled(headers: Pairs) -> tuple[str, ...]:
    names = [name.lower() for name, _ in headers]
    if len(names) == len(set(names)):
        return ()
    return tuple(name for name in _SINGLE if names.count(name.encode()) > 1)


def _read(response: httpx.Response) -> Reply:
    if response.status_code != 200:
        return Reply(response.status_code, response.text)
    try:
        document = orjson.loads(response.content)
        choice = document["choices"][0]
        message, finish_reason, name = choice["message"], choice["finish_reason"], document["id"]
    except (ValueError, LookupError, TypeError):
        return Reply(200, response.text)
    if not isinstance(message, dict) or not isinstance(name, str):
        return Reply(200, response.text)
    return Reply(200, "", name, finish_reason if isinstance(finish_reason, str) else None, message)
