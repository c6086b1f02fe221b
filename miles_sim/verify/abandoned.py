"""A request that an agent leaves under way when it returns: its session is closed over it."""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import orjson

from miles_sim.ledger import Turn
from miles_sim.scenarios.model import Scenario
from miles_sim.verify.tap import Tap

KEY = "abandoned"
"""Tag of the question, and step of its turn."""


class Abandoned:
    """Those of one play. The agent returns once the engine has answered its request, and the tap keeps that back."""

    def __init__(self, scenario: Scenario, client: httpx.AsyncClient, tap: Tap) -> None:
        self._model = scenario.engine.model
        self._client = client
        self._tap = tap
        self._tasks: list[asyncio.Task[Turn]] = []

    async def leave(self, rollout: int, base_url: str, request_kwargs: Mapping[str, Any]) -> None:
        """Ends when the request is on its way, or refused."""
        messages = [{"role": "user", "content": f"Never mind [{KEY}]"}]
        body = orjson.dumps({**request_kwargs, "model": self._model, "messages": messages})
        task = asyncio.ensure_future(self._ask(rollout, f"{base_url.rstrip('/')}/v1/chat/completions", body))
        self._tasks.append(task)
        reached = asyncio.ensure_future(self._tap.reached(KEY, request_kwargs.get("seed")))
        await asyncio.wait({task, reached}, return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()

    async def turns(self) -> list[Turn]:
        """What became of each, once all are over."""
        return sorted(await asyncio.gather(*self._tasks), key=lambda turn: turn.rollout)

    async def _ask(self, rollout: int, url: str, body: bytes) -> Turn:
        status, name = 0, None
        try:
            answer = await self._client.post(url, content=body, headers={"content-type": "application/json"})
            status = answer.status_code
            name = orjson.loads(answer.content).get("id") if status == 200 else None
        except (httpx.HTTPError, orjson.JSONDecodeError):
            pass
        return Turn(
            rollout=rollout,
            step=KEY,
            kind=KEY,
            parent=None,
            retry_of=None,
            status=status,
            response_id=name,
            finish_reason=None,
        )
