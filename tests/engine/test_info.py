"""What an engine tells of itself, in each release's keys."""

from collections.abc import Callable

import httpx
import pytest

from miles_sim.document import DocumentError
from miles_sim.engine import profiles
from miles_sim.engine.engine import Engine
from miles_sim.engine.info import Info
from miles_sim.engine.prompt import Prompt
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.server_args import defaults

Make = Callable[..., Engine]
ALL = profiles.names()


async def get(engine: Engine, path: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=engine.app), base_url="http://engine") as client:
        return await client.get(path)


def ask(engine: Engine, *ids: int, tokens: int = 9) -> None:
    engine.submit(Prompt(ids, ""), Sampling(max_new_tokens=tokens), endpoint="generate")


@pytest.mark.parametrize("profile", ALL)
async def test_model_and_server_info_answer_under_both_names(make_engine: Make, profile: str) -> None:
    engine = make_engine(profile=profile, speculative={}, max_running_requests=4, latency={"clock": "virtual"})
    for new, old in (("/model_info", "/get_model_info"), ("/server_info", "/get_server_info")):
        first, second = await get(engine, new), await get(engine, old)
        assert first.status_code == 200
        assert first.content == second.content
    assert tuple((await get(engine, "/model_info")).json()) == engine.release.model_info
    known = (await get(engine, "/server_info")).json()
    assert known["speculative_num_draft_tokens"] == 4
    assert known["max_running_requests"] == 4
    assert known["internal_states"][0].get("effective_max_running_requests_per_dp", 4) == 4
    assert ("frontend" in known) is (profile == "sglang-0.5.23")
    arguments = defaults(profile)
    assert tuple(known) == (*arguments, *(key for key in engine.release.server_info if key not in arguments))
    assert set(known["internal_states"][0]) == {*arguments, *engine.release.internal_state} - {"avg_spec_accept_length"}
    assert known["version"] in engine.profile.release


async def test_models_are_listed_and_unknown_ones_are_a_404(make_engine: Make) -> None:
    engine = make_engine(model="org/sim", context_length=64)
    card = {"id": "org/sim", "object": "model", "created": 1_767_225_600, "owned_by": "sglang", "root": "org/sim"}
    card |= {"parent": None, "max_model_len": 64}  # type: ignore[dict-item]
    assert (await get(engine, "/v1/models")).json() == {"object": "list", "data": [card]}
    assert (await get(engine, "/v1/models/org/sim")).json() == card
    missing = await get(engine, "/v1/models/nope")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("profile", ALL)
async def test_load_counts_what_runs_and_what_waits(make_engine: Make, profile: str) -> None:
    engine = make_engine(profile=profile, latency={"clock": "virtual"}, max_running_requests=2)
    for n in range(5):
        ask(engine, n, 2, 3)
    release = engine.release
    if release.get_load and "/get_load" in release.routes:
        (entry,) = (await get(engine, "/get_load")).json()
        assert tuple(entry) == release.get_load
        assert (entry["num_reqs"], entry["num_waiting_reqs"]) == (5, 3)
    if "/v1/loads" not in release.routes:
        assert (await get(engine, "/v1/loads")).status_code == 404
        return
    body = (await get(engine, "/v1/loads?include=core")).json()
    assert tuple(body) == release.loads_body
    (entry,) = body["loads"]
    assert tuple(entry) == release.loads
    assert (entry["num_running_reqs"], entry["num_waiting_reqs"], entry["utilization"]) == (2, 3, 1.0)
    assert (await get(engine, "/v1/loads?dp_rank=1")).json()["loads"] == []
    text = (await get(engine, "/v1/loads?format=prometheus")).text
    assert 'sglang_num_running_reqs{dp_rank="0"} 2\n' in text
    wrong = await get(engine, "/v1/loads?include=everything")
    assert (wrong.status_code, wrong.json()["type"]) == (400, "400")
    engine.scheduler.abort()


async def test_load_tells_of_speculation_only_after_a_verify_step(make_engine: Make) -> None:
    engine = make_engine(speculative={"acceptance": [1.0]})
    assert "speculative" not in (await get(engine, "/v1/loads")).json()["loads"][0]
    ask(engine, 1, 2)
    assert (await get(engine, "/v1/loads")).json()["loads"][0]["speculative"] == {
        "accept_length": 4.0,
        "accept_rate": 1.0,
    }


def test_every_handler_stands_for_a_path_of_some_release(make_engine: Make) -> None:
    paths = set().union(*(make_engine(profile=profile).release.routes for profile in ALL))
    assert set(Info(make_engine()).handlers()) <= paths


@pytest.mark.parametrize(
    ("profile", "count", "has", "lacks"),
    [
        ("sglang-0.5.6", 287, "stream_output", "incremental_streaming_output"),
        ("miles-rl-0.0.2", 354, "enable_return_routed_experts", "enable_return_indexer_topk"),
        ("sglang-0.5.16", 445, "enable_return_indexer_topk", "stream_output"),
        ("sglang-0.5.23", 546, "incremental_streaming_output", "nsa_prefill_backend"),
    ],
)
def test_a_release_has_its_own_server_arguments(profile: str, count: int, has: str, lacks: str) -> None:
    known = defaults(profile)
    assert (len(known), has in known, lacks in known) == (count, True, False)


def test_an_unknown_release_has_none() -> None:
    with pytest.raises(DocumentError, match=r"profile: 'sglang-9' is none of sglang-0\.5\.6, "):
        defaults("sglang-9")


async def test_server_info_tells_with_what_the_engine_was_started(make_engine: Make) -> None:
    engine = make_engine(tokenizer="qwen3", lora={"mine": "/a"}, stream_interval=7, metrics=True, experts={})
    known = (await get(engine, "/server_info")).json()
    assert (known["tool_call_parser"], known["reasoning_parser"]) == ("qwen25", "qwen3")
    assert (known["stream_interval"], known["enable_metrics"], known["enable_return_routed_experts"]) == (7, True, True)
    assert known["lora_paths"] == [{"lora_id": "mine", "lora_name": "mine", "lora_path": "/a", "pinned": False}]
    assert (known["tp_size"], known["schedule_policy"], known["status"]) == (1, "fcfs", "ready")


async def test_the_accept_length_is_told_once_a_verify_step_ran(make_engine: Make) -> None:
    engine = make_engine(speculative={"acceptance": [1.0]})
    ask(engine, 1, 2)
    (state,) = (await get(engine, "/server_info")).json()["internal_states"]
    assert state["avg_spec_accept_length"] == 4.0
