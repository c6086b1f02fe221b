"""A tap between target and engine: who asked for which direct generation."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Tap:
    """An ASGI app in front of the engine's; all goes through as it is."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.seeds: dict[str, int | None] = {}
        """Response id of a `/generate` to the sampling seed that it was asked with."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/generate":
            await self._app(scope, receive, send)
            return
        asked, answered = bytearray(), bytearray()

        async def heard() -> MutableMapping[str, Any]:
            message = await receive()
            asked.extend(message.get("body", b""))
            return message

        async def said(message: MutableMapping[str, Any]) -> None:
            answered.extend(message.get("body", b""))
            await send(message)

        await self._app(scope, heard, said)
        self._note(bytes(asked), bytes(answered))

    def _note(self, asked: bytes, answered: bytes) -> None:
        try:
            name = orjson.loads(answered)["meta_info"]["id"]
            seed = (orjson.loads(asked).get("sampling_params") or {}).get("sampling_seed")
        except (ValueError, LookupError, TypeError, AttributeError):
            return  # a refusal, or a stream: no generation that a rollout could be told by
        self.seeds[name] = seed if isinstance(seed, int) else None
