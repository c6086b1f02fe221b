"""`miles-sim chaos` with the real sglang-router, before it and between it and an engine (docs/router.md)."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from miles_sim.engine.engine import Engine
from miles_sim.engine.settings import EngineSettings
from miles_sim.transport import serve

from .router import routed

pytest.importorskip("sglang_router")

CHAT = "/v1/chat/completions"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"model": "sim", "messages": [{"role": "user", "content": "hello"}], "logprobs": True},
    "/generate": {"text": "hello", "return_logprob": True},
}
BEFORE = """
faults:
  - {kind: transport-reset-body, where: {attempt: 0}}
  - {kind: payload-logprobs-short, where: {attempt: 1}}
"""
BETWEEN = """
faults:
  - {kind: transport-reset-before, when: {first: 2}}
  - {kind: payload-logprobs-short, where: {attempt: 2}}
"""


def engine() -> Engine:
    return Engine(EngineSettings.model_validate({"default_reply": {"tokens": 12}}), seed=3)


@asynccontextmanager
async def chaos(upstream: str, plan: str, folder: Path) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """The URL of the command, as a process of its own under this plan; its journal is there when it has ended."""
    (folder / "plan.yaml").write_text(plan, encoding="utf-8")
    told: list[dict[str, Any]] = []
    words = ["--upstream", upstream, "--port", "0", "--plan", "plan.yaml", "--journal", "strikes.jsonl"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "miles_sim.cli", "chaos", *words, cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        found = re.match(r"faults at (\S+) before ", line)
        assert found, line
        yield found[1], told
        process.terminate()
        await process.communicate()
        assert process.returncode == 0
        told += map(json.loads, (folder / "strikes.jsonl").read_text("utf-8").splitlines())
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def asked(url: str, path: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:
        return await client.post(path, json=BODIES[path])


def entries(path: str, answer: httpx.Response) -> tuple[int, int]:
    """(ids that the reply counts, logprobs that it gives)."""
    found = answer.json()
    if path == CHAT:
        return found["usage"]["completion_tokens"], len(found["choices"][0]["logprobs"]["content"])
    return found["meta_info"]["completion_tokens"], len(found["meta_info"]["output_token_logprobs"])


@pytest.mark.parametrize("path", BODIES)
async def test_before_the_router_who_asks_meets_the_fault_and_the_router_knows_of_none(
    path: str, tmp_path: Path
) -> None:
    behind = engine()
    async with (
        serve(behind.app) as worker,
        routed([worker]) as router,
        chaos(router, BEFORE, tmp_path) as (url, told),
    ):
        with pytest.raises(httpx.ReadError):
            await asked(url, path)
        spoiled, whole = [entries(path, await asked(url, path)) for _ in range(2)]
    assert spoiled[1] == spoiled[0] - 1
    assert whole[1] == whole[0]
    assert len(behind.generations) == 3
    assert [(line["kind"], line["path"], line["fired"]) for line in told] == [
        ("transport-reset-body", path, True),
        ("payload-logprobs-short", path, True),
    ]


async def test_between_the_router_and_an_engine_a_reset_is_asked_again_and_a_spoiled_body_handed_on(
    tmp_path: Path,
) -> None:
    behind = engine()
    async with (
        serve(behind.app) as worker,
        chaos(worker, BETWEEN, tmp_path) as (url, told),
        routed([url]) as router,
    ):
        answer = await asked(router, CHAT)
    assert answer.status_code == 200
    counted, given = entries(CHAT, answer)
    assert given == counted - 1
    assert len(behind.generations) == 1
    assert [(line["kind"], line["attempt"], line["fired"]) for line in told] == [
        ("transport-reset-before", 0, True),
        ("transport-reset-before", 1, True),
        ("payload-logprobs-short", 2, True),
    ]
