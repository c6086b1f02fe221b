"""A tap between target and engine: what was asked and answered, and what is held back there."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

GENERATING = ("/generate", "/v1/chat/completions")


@dataclass(frozen=True)
class Exchange:
    """One request that the engine answered with a generation."""

    path: str
    asked: bytes
    answered: bytes

    @cached_property
    def request(self) -> dict[str, Any]:
        return _object(self.asked)

    @cached_property
    def response(self) -> dict[str, Any]:
        return _object(self.answered)

    @property
    def response_id(self) -> str | None:
        """None: a refusal, or a stream."""
        holder = self.response if self.path == "/v1/chat/completions" else self.response.get("meta_info")
        name = holder.get("id") if isinstance(holder, dict) else None
        return name if isinstance(name, str) else None

    @property
    def sampling_seed(self) -> int | None:
        """What the request was sampled with, if it says."""
        if self.path == "/v1/chat/completions":
            return self.request.get("seed")
        return (self.request.get("sampling_params") or {}).get("sampling_seed")


class Tap:
    """An ASGI app in front of the engine's.

    Answers to chat requests whose last message holds `[key]` of one of `held` are kept back until `release`, or until
    their client leaves; all else goes through as it is.
    """

    def __init__(self, app: App, held: Iterable[str] = ()) -> None:
        self._app = app
        self._held = frozenset(held)
        self._free = asyncio.Event()
        self._arrived: defaultdict[tuple[str, int | None], asyncio.Event] = defaultdict(asyncio.Event)
        self.exchanges: list[Exchange] = []
        self.holding = 0
        """Answers that are kept back at this moment."""

    @property
    def by_id(self) -> dict[str, Exchange]:
        """Response id to its exchange, in the order of ids."""
        named = {exchange.response_id: exchange for exchange in self.exchanges}
        return {name: named[name] for name in sorted(name for name in named if name is not None)}

    def release(self) -> None:
        """Let all go that is kept back."""
        self._free.set()

    async def reached(self, key: str, seed: int | None) -> None:
        """Ends when the answer to that step, asked with that seed, is kept back."""
        await self._arrived[key, seed].wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in GENERATING:
            await self._app(scope, receive, send)
            return
        asked, answer = bytearray(), []

        async def heard() -> Message:
            message = await receive()
            asked.extend(message.get("body", b""))
            return message

        async def said(message: Message) -> None:
            answer.append(message)
            if not self._held:
                await send(message)

        await self._app(scope, heard, said)
        body = b"".join([message.get("body", b"") for message in answer])
        exchange = Exchange(scope["path"], bytes(asked), body)
        self.exchanges.append(exchange)
        if self._held:
            key = self._key(exchange)
            if key is not None and not await self._kept_back((key, exchange.sampling_seed), receive):
                return
            for message in answer:
                await send(message)

    def _key(self, exchange: Exchange) -> str | None:
        messages = exchange.request.get("messages") or [{}]
        text = str(messages[-1].get("content"))
        return next((key for key in self._held if f"[{key}]" in text), None)

    async def _kept_back(self, place: tuple[str, int | None], receive: Receive) -> bool:
        """Whether somebody still wants the answer when it is let go."""
        self.holding += 1
        self._arrived[place].set()
        free, gone = asyncio.ensure_future(self._free.wait()), asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({free, gone}, return_when=asyncio.FIRST_COMPLETED)
            return not gone.done()
        finally:
            self.holding -= 1
            free.cancel()
            gone.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
