import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from miles_sim.agent import function
from miles_sim.document import DocumentError

FILE = """
name: mine
title: One question
seed: 3
plan:
  steps: [{do: say, words: 2}]
  returns: {reward: 0.5}
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the agent function asks, answered in this process."""
    bodies: list[dict[str, Any]] = []

    async def chat(request: Request) -> JSONResponse:
        bodies.append(await request.json())
        message = {"role": "assistant", "content": "done"}
        return JSONResponse({"id": "r", "choices": [{"message": message, "finish_reason": "stop"}]})

    app = Starlette(routes=[Route("/sessions/s/v1/chat/completions", chat, methods=["POST"])])
    client = httpx.AsyncClient

    def local(**options: Any) -> httpx.AsyncClient:
        return client(transport=httpx.ASGITransport(app=app), **options)

    monkeypatch.setattr(function.httpx, "AsyncClient", local)
    monkeypatch.delenv(function.SCENARIO, raising=False)
    monkeypatch.delenv(function.JOURNAL, raising=False)
    return bodies


async def test_the_plan_comes_from_metadata(asked: list[dict[str, Any]]) -> None:
    metadata = {"miles_sim_plan": {"steps": [{"do": "say", "text": "hello"}], "returns": {"reward": 1.0}}}
    returned = await function.run("http://h/sessions/s", "prompt", {"seed": 4}, metadata, extra=1)
    assert returned == {"reward": 1.0}
    assert asked[0]["seed"] == 4
    assert asked[0]["messages"][-1]["content"] == "hello [1]"


async def test_the_plan_comes_from_a_scenario_file(
    asked: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.yaml").write_text(FILE)
    monkeypatch.setenv(function.SCENARIO, str(tmp_path / "mine.yaml"))
    monkeypatch.setenv(function.JOURNAL, str(tmp_path / "journal.jsonl"))

    for rollout in (0, 1):
        assert await function.run("http://h/sessions/s/", metadata={"miles_sim_rollout": rollout}) == {"reward": 0.5}

    turns = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert [(turn["rollout"], turn["step"], turn["response_id"]) for turn in turns] == [(0, "1", "r"), (1, "1", "r")]
    assert asked[0] == asked[1]


async def test_no_plan_is_an_error_that_names_both_places(asked: list[dict[str, Any]]) -> None:
    with pytest.raises(DocumentError, match=r"miles_sim_plan.*MILES_SIM_SCENARIO"):
        await function.run("http://h")
    assert not asked


async def test_a_fault_in_the_file_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.yaml").write_text(FILE.replace("words: 2", "wrods: 2"))
    monkeypatch.setenv(function.SCENARIO, str(tmp_path / "mine.yaml"))
    with pytest.raises(DocumentError, match=r"mine\.yaml: plan: line 6: steps\[0\]\.wrods: extra"):
        await function.run("http://h")


async def test_a_rollout_that_is_no_number_is_refused(asked: list[dict[str, Any]]) -> None:
    with pytest.raises(DocumentError, match="miles_sim_rollout: 'x' is not an integer"):
        await function.run("http://h", metadata={"miles_sim_plan": {}, "miles_sim_rollout": "x"})
