"""The control plane over HTTP, as each release answers it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from miles_sim.engine import info, profiles
from miles_sim.engine.engine import Engine
from miles_sim.engine.flight import Flight
from miles_sim.transport import LocalNetwork, serve

Make = Callable[..., Engine]
ALL = profiles.names()
FROM_0_5_10 = [name for name in ALL if name != "sglang-0.5.6"]
NEWEST = "sglang-0.5.23"
VIRTUAL = {"clock": "virtual"}
FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)


@asynccontextmanager
async def client_of(engine: Engine) -> AsyncIterator[httpx.AsyncClient]:
    network = LocalNetwork()
    network.mount("engine", engine.app)
    async with httpx.AsyncClient(transport=network, base_url="http://engine") as client:
        yield client


def question(rid: str = "r", tokens: int = 20, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": rid}], "rid": rid, "max_tokens": tokens, **fields}


def arrival(engine: Engine) -> "asyncio.Future[Flight]":
    """The next request that is submitted."""
    submit, arrived = engine.submit, asyncio.get_running_loop().create_future()

    def watched(*args: Any, **kwargs: Any) -> Flight:
        flight = submit(*args, **kwargs)
        engine.submit = submit  # type: ignore[method-assign]
        arrived.set_result(flight)
        return flight

    engine.submit = watched  # type: ignore[method-assign]
    return arrived


async def under_way(engine: Engine, client: httpx.AsyncClient, **fields: Any) -> "asyncio.Task[httpx.Response]":
    """A chat request that has had two passes."""
    arrived = arrival(engine)
    task = asyncio.ensure_future(client.post("/v1/chat/completions", json=question(**fields)))
    async for step in await arrived:
        if step.end == 2:
            break
    return task


@pytest.mark.parametrize("profile", ALL)
async def test_abort_pause_and_continue_act_on_a_request_in_flight(make_engine: Make, profile: str) -> None:
    engine = make_engine(profile=profile, latency=VIRTUAL)
    async with client_of(engine) as client:
        task = await under_way(engine, client)
        aborted = await client.post("/abort_request", json={"rid": "r"})
        answer = await task
        assert (aborted.status_code, aborted.content) == (200, b"")
        assert answer.status_code == 200
        assert answer.json()["choices"][0]["finish_reason"] == "abort"
        assert 2 < answer.json()["usage"]["completion_tokens"] < 20
        paused = await client.post("/pause_generation", json={"mode": "in_place"})
        assert (paused.status_code, paused.json()) == (
            200,
            {"message": "Generation paused successfully.", "status": "ok"},
        )
        arrived = arrival(engine)
        waits = asyncio.ensure_future(client.post("/v1/chat/completions", json=question("b")))
        assert (await arrived).phase == "held"
        going = await client.post("/continue_generation", json={})
        assert going.json() == {"message": "Generation continued successfully.", "status": "ok"}
        assert (await waits).json()["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("path", "body", "fault"),
    [
        ("/abort_request", b"", "Field required"),
        ("/pause_generation", b"", "Field required"),
        ("/continue_generation", b"", "Field required"),
        ("/pause_generation", b'{"mode": "gently"}', "Input should be 'abort', 'retract' or 'in_place'"),
        ("/update_weights_from_disk", b"{}", "model_path"),
        ("/update_weight_version", b'{"new_version": 3}', "new_version"),
        ("/load_lora_adapter", b"[]", "Input should be"),
        ("/init_weights_update_group", b"{", "JSON decode error"),
    ],
)
async def test_a_body_that_does_not_fit_is_a_400_that_names_the_field(
    make_engine: Make, path: str, body: bytes, fault: str
) -> None:
    async with client_of(make_engine()) as client:
        answer = await client.post(path, content=body, headers={"content-type": "application/json"})
    error = answer.json()
    assert (answer.status_code, error["object"], error["type"], error["code"]) == (400, "error", "Bad Request", 400)
    assert fault in error["message"]


@pytest.mark.parametrize("profile", ALL)
async def test_a_flush_empties_the_cache_when_idle_and_says_so(make_engine: Make, profile: str) -> None:
    engine = make_engine(profile=profile, latency=VIRTUAL)
    async with client_of(engine) as client:
        await client.post("/v1/chat/completions", json=question())
        assert engine.prefix_cache.size
        for method in ("GET", "POST"):
            done = await client.request(method, "/flush_cache")
            assert (done.status_code, done.text) == (200, FLUSHED)
        assert engine.prefix_cache.size == 0
        task = await under_way(engine, client)
        refused = await client.post("/flush_cache")
        assert refused.status_code == 400
        assert refused.text == (FLUSHED if profile == "sglang-0.5.6" else "Flush cache failed.\n")
        await task


async def test_a_flush_with_a_timeout_waits_for_idle(make_engine: Make) -> None:
    engine = make_engine(latency=VIRTUAL)
    async with client_of(engine) as client:
        task = await under_way(engine, client)
        first, second = await asyncio.gather(*(client.post("/flush_cache?timeout=5") for _ in range(2)))
        assert (first.status_code, second.text) == (200, "Another flush_cache is already in progress.")
        await task
        task = await under_way(engine, client)
        await client.post("/pause_generation", json={"mode": "in_place"})
        late = await client.post("/flush_cache?timeout=0.001")
        assert (late.status_code, late.text) == (400, "Timed out waiting for idle state.")
        await client.post("/continue_generation", json={})
        await task
        for wrong in ("-1", "soon", "nan"):
            assert (await client.post(f"/flush_cache?timeout={wrong}")).status_code == 400


@pytest.mark.parametrize("profile", ALL)
async def test_each_update_of_the_weights_shows_in_the_next_answer(make_engine: Make, profile: str) -> None:
    engine = make_engine(profile=profile)
    updates: dict[str, dict[str, Any]] = {
        "disk": {"model_path": "/next"},
        "tensor": {"serialized_named_tensors": ["AA=="]},
        "distributed": {"names": ["w"], "dtypes": ["float32"], "shapes": [[1]]},
        "ipc": {"zmq_handles": {}},
    }
    group = {"master_address": "127.0.0.1", "master_port": 1, "rank_offset": 1, "world_size": 2}
    async with client_of(engine) as client:
        assert (await client.post("/init_weights_update_group", json=group)).json()["success"]
        if profile == NEWEST:
            assert (await client.post("/begin_weight_update", json={})).json() == {
                "success": True,
                "message": "Success",
            }
        for source, body in updates.items():
            done = await client.post(f"/update_weights_from_{source}", json={**body, "weight_version": source})
            assert (done.status_code, done.json()["success"]) == (200, True), done.text
            assert done.json()["message"].endswith(f" Weight version updated to {source}.")
            answer = (await client.post("/v1/chat/completions", json=question(source))).json()
            assert answer["metadata"]["weight_version"] == source
            assert (await client.get("/model_info")).json()["weight_version"] == source
        assert (await client.get("/model_info")).json()["model_path"] == "/next"
        named = await client.post("/update_weight_version", json={"new_version": "10"})
        assert named.json() == {"success": True, "message": "Weight version updated to 10", "new_version": "10"}
        assert (await client.post("/destroy_weights_update_group", json={})).json()["success"]
        assert (await client.post("/destroy_weights_update_group", json={})).status_code == 400


async def test_an_update_without_its_session_or_group_is_refused(make_engine: Make) -> None:
    body = {"names": [], "dtypes": [], "shapes": []}
    async with client_of(make_engine(profile=NEWEST)) as client:
        refused = await client.post("/update_weights_from_distributed", json=body)
        assert (refused.status_code, "begin_weight_update" in refused.json()["message"]) == (400, True)
        assert (await client.post("/end_weight_update", json={})).status_code == 400
        await client.post("/begin_weight_update", json={})
        assert (await client.post("/begin_weight_update", json={})).status_code == 400
        refused = await client.post("/update_weights_from_distributed", json=body)
        assert "Group weight_update_group not in []" in refused.json()["message"]
        assert (await client.post("/end_weight_update", json={})).status_code == 200


async def test_an_update_under_a_pause_shows_between_two_ids_of_one_answer(make_engine: Make) -> None:
    engine = make_engine(profile=NEWEST, latency=VIRTUAL, weight_version="1")
    async with client_of(engine) as client:
        task = await under_way(engine, client, return_meta_info=True)
        await client.post("/pause_generation", json={"mode": "in_place"})
        refused = await client.post("/update_weights_from_disk", json={"model_path": "m", "weight_version": "2"})
        assert refused.json()["message"].startswith("Weights were updated, but the cache was not flushed")
        update = {"model_path": "m", "weight_version": "2", "flush_cache": False}
        assert (await client.post("/update_weights_from_disk", json=update)).json()["num_paused_requests"] == 0
        await client.post("/continue_generation", json={})
        spans = (await task).json()["choices"][0]["meta_info"]["weight_versions"]
    assert spans[0] | {"end": 0} == {"version": "1", "start": 0, "end": 0}
    assert spans[1] == {"version": "2", "start": spans[0]["end"], "end": 20}


async def test_adapters_are_loaded_listed_used_and_unloaded_once_their_requests_are_done(make_engine: Make) -> None:
    engine = make_engine(latency=VIRTUAL, lora={"first": "/first"})
    async with client_of(engine) as client:
        loaded = await client.post("/load_lora_adapter", json={"lora_name": "second", "lora_path": "/second"})
        assert loaded.json() == {
            "rid": None,
            "http_worker_ipc": None,
            "success": True,
            "error_message": "",
            "loaded_adapters": {"first": "/first", "second": "/second"},
        }
        again = await client.post("/load_lora_adapter", json={"lora_name": "second", "lora_path": "/second"})
        assert (again.status_code, "already loaded" in again.json()["error_message"]) == (400, True)
        models = (await client.get("/v1/models")).json()["data"]
        assert [(m["id"], m["root"], m["parent"]) for m in models][1] == ("first", "/first", "sim")
        task = await under_way(engine, client, lora_path="second")
        unloading = asyncio.ensure_future(client.post("/unload_lora_adapter", json={"lora_name": "second"}))
        assert (await task).status_code == 200
        assert list((await unloading).json()["loaded_adapters"]) == ["first"]
        assert engine.generations[0].lora == "second"
        never = await client.post("/v1/chat/completions", json=question("x", lora_path="third"))
        assert (never.status_code, "never been loaded: third" in never.text) == (400, True)


@pytest.mark.parametrize("profile", ALL)
async def test_an_adapter_on_an_engine_without_any(make_engine: Make, profile: str) -> None:
    async with client_of(make_engine(profile=profile)) as client:
        load = await client.post("/load_lora_adapter", json={"lora_name": "a", "lora_path": "/a"})
        chat = await client.post("/v1/chat/completions", json=question(lora_path="a"))
    assert (load.status_code, "LoRA is not enabled" in load.text) == (400, True)
    assert chat.status_code == (200 if profile == "sglang-0.5.6" else 400)


@pytest.mark.parametrize(("tags", "left"), [(None, 0), ([], 0), (["weights", "kv_cache"], 0), (["weights"], 1)])
async def test_released_kv_is_lost_to_the_prefix_cache(make_engine: Make, tags: list[str] | None, left: int) -> None:
    engine = make_engine()
    async with client_of(engine) as client:
        await client.post("/v1/chat/completions", json=question())
        whole = engine.prefix_cache.size
        assert (await client.post("/release_memory_occupation", json={"tags": tags})).status_code == 200
        assert engine.prefix_cache.size == left * whole


async def test_memory_of_an_engine_at_work_cannot_be_released(make_engine: Make) -> None:
    engine = make_engine(latency=VIRTUAL)
    async with client_of(engine) as client:
        task = await under_way(engine, client)
        assert (await client.post("/release_memory_occupation", json={})).status_code == 500
        assert (await task).status_code == 200


async def test_an_adapter_that_is_loaded_anew_finds_nothing_of_the_one_before(make_engine: Make) -> None:
    engine, adapter = make_engine(lora={"mine": "/a"}), {"lora_name": "mine", "lora_path": "/b"}
    async with client_of(engine) as client:
        for _ in range(2):
            await client.post("/v1/chat/completions", json=question(lora_path="mine"))
        await client.post("/unload_lora_adapter", json=adapter)
        await client.post("/load_lora_adapter", json=adapter)
        for _ in range(2):
            await client.post("/v1/chat/completions", json=question(lora_path="mine"))
    usable = len(engine.generations[0].prompt_ids) - 1
    assert [one.cached_tokens for one in engine.generations] == [0, usable, 0, usable]


async def test_memory_is_given_and_taken_without_a_word(make_engine: Make) -> None:
    async with client_of(make_engine()) as client:
        for path in ("/release_memory_occupation", "/resume_memory_occupation"):
            answer = await client.post(path, json={"tags": ["kv_cache"]})
            assert (answer.status_code, answer.content) == (200, b"null")


@pytest.mark.parametrize("profile", ALL)
async def test_health_waits_for_the_end_of_a_pause_and_then_gives_up(
    make_engine: Make, profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(info, "HEALTH_CHECK_SECONDS", 0.001)
    engine = make_engine(profile=profile)
    newer = "/ready" in engine.release.routes
    async with client_of(engine) as client:
        before = [(await client.get(path)).status_code for path in ("/health", "/health_generate", "/ready", "/ping")]
        await client.post("/pause_generation", json={})
        after = [(await client.get(path)).status_code for path in ("/health", "/health_generate", "/ready", "/ping")]
        monkeypatch.setattr(info, "HEALTH_CHECK_SECONDS", 60)
        waiting = asyncio.ensure_future(client.get("/health"))
        await asyncio.sleep(0)
        await client.post("/continue_generation", json={})
        assert (await waiting).status_code == 200
    assert before == [200, 200, 200 if newer else 404, 200]
    assert after == [503, 503, 503 if newer else 404, 200]


@pytest.mark.parametrize("profile", ALL)
async def test_paths_that_a_release_lacks_are_404_and_those_not_modelled_501_by_name(
    make_engine: Make, profile: str
) -> None:
    engine = make_engine(profile=profile)
    async with client_of(engine) as client:
        missing = await client.post("/begin_weight_update", json={})
        unmodelled = await client.post("/v1/embeddings", json={})
        wrong = await client.get("/abort_request")
    assert missing.status_code == (200 if profile == NEWEST else 404)
    assert (unmodelled.status_code, unmodelled.json()["param"]) == (501, "path")
    assert "/v1/embeddings" in unmodelled.json()["message"]
    assert (wrong.status_code, wrong.json()) == (405, {"detail": "Method Not Allowed"})


@pytest.mark.parametrize("profile", ALL)
async def test_the_weight_version_has_a_route_only_where_the_release_has_one(make_engine: Make, profile: str) -> None:
    async with client_of(make_engine(profile=profile)) as client:
        answer = await client.get("/get_weight_version")
    if profile == "sglang-0.5.6":
        assert answer.json() == {"weight_version": "default"}
    elif profile == NEWEST:
        assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})
    else:
        assert (answer.status_code, answer.json()["type"]) == (404, "404")
        assert answer.json()["message"].endswith("Please use '/model_info' instead.")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/generate"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_over_a_socket_aborts_its_request(
    make_engine: Make, stream: bool, path: str
) -> None:
    engine = make_engine(latency={"clock": "real", "decode_step": 0.02}, default_reply={"tokens": 3000})
    bodies: dict[str, Any] = {
        "/v1/chat/completions": question(tokens=2500),
        "/generate": {"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 2500}},
    }
    async with serve(engine.app) as url, httpx.AsyncClient(trust_env=False) as client:
        arrived = arrival(engine)
        task = asyncio.ensure_future(client.post(url + path, json=bodies[path] | {"stream": stream}))
        flight = await arrived
        task.cancel()
        answered = await flight
    assert answered.generation.finish_reason["type"] == "abort"
    assert engine.requests_open == 0


@pytest.mark.parametrize("profile", ALL)
async def test_a_full_queue_is_a_503_with_the_releases_body(make_engine: Make, profile: str) -> None:
    engine = make_engine(profile=profile, latency=VIRTUAL, max_running_requests=1, max_queued_requests=1)
    generate = {"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 5}}
    async with client_of(engine) as client:
        task = await under_way(engine, client)
        arrived = arrival(engine)
        waits = asyncio.ensure_future(client.post("/v1/chat/completions", json=question("waits")))
        assert (await arrived).phase == "waiting"
        refused = await asyncio.gather(
            client.post("/v1/chat/completions", json=question("full")), client.post("/generate", json=generate)
        )
        assert [(await one).status_code for one in (task, waits)] == [200, 200]
    message = "The request queue is full."
    body = {"object": "error", "message": message, "type": "503", "param": None, "code": 503}
    assert [(answer.status_code, answer.json()) for answer in refused] == [(503, body)] * 2


def test_all_profiles_have_a_control_plane(make_engine: Make) -> None:
    for profile in ALL:
        assert "/abort_request" in make_engine(profile=profile).release.routes
    assert json.dumps(make_engine().release.model_dump())
