"""The published JSON Schemas are the models', what a run writes fits them, and a change moves a version."""

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from miles_sim.engine import profiles
from miles_sim.engine.engine import Engine
from miles_sim.engine.settings import EngineSettings
from miles_sim.rollout.session.server import SessionServer
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.transport import LocalNetwork
from miles_sim.verify.engine_schemas import PATHS
from miles_sim.verify.payload import read_payload
from miles_sim.verify.run import Run
from miles_sim.verify.schemas import entry, names, schema, text, version
from miles_sim.verify.shape import faults

FOLDER = Path(__file__).parent / "schemas"
VERSIONS = FOLDER / "versions.txt"


@pytest.mark.parametrize("name", names())
def test_the_published_schema_is_the_models(name: str) -> None:
    published = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert published == json.loads(text(name)), f"run: miles-sim schemas {name} > contracts/schemas/{name}.json"


def test_no_schema_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(names())


@pytest.mark.parametrize("name", names())
def test_a_changed_schema_moves_its_version(name: str) -> None:
    known = dict(line.split() for line in VERSIONS.read_text(encoding="utf-8").splitlines())
    kind, digest = entry(name).split()
    assert kind in known, f"{kind}: a version without an entry; add a line to versions.txt: {entry(name)}"
    number = version(name)
    assert digest == known[kind], (
        f"{name}: its shape is not that of version {number}; set its version to {number + 1} in "
        f"miles_sim/verify/schemas.py, then add a line to versions.txt: miles-sim schemas {name} --versions"
    )


def _valid(name: str, document: Any, part: str | None = None) -> None:
    """`part`: only what stands under that property."""
    whole = schema(name)
    own = whole if part is None else whole["properties"][part]
    ours = {**own, "$schema": whole["$schema"], "$defs": whole.get("$defs", {})}
    validator = jsonschema.Draft202012Validator(ours)
    validator.check_schema(validator.schema)
    errors = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]
    assert errors == []


def test_documents_of_a_run_fit_their_schema(run: Run) -> None:
    _valid("report", json.loads(run.report.to_json()))
    for case in list(run.cases.values())[::10]:  # a second each, for the library reads every id by itself
        _valid("scenario", case.scenario.model_dump(mode="json"))
        _valid("ledger", case.ledger.model_dump(mode="json"))
        _valid("observation", case.observation.model_dump(mode="json", by_alias=True))


def test_payloads_of_a_run_fit_the_samples_wire(run: Run) -> None:
    payloads = [rollout.view.payload for case in run.cases.values() for rollout in case.rollouts]
    told = [payload for payload in payloads if payload is not None]
    assert len(told) > 100
    for payload in told[::5]:
        assert base64.b64decode(payload)
        _valid("samples-wire", read_payload(payload).document)


def test_every_answer_of_a_run_fits_its_profile_by_both_readers(run: Run) -> None:
    seen = set()
    for case in run.cases.values():
        profile = case.scenario.engine.profile
        for exchange in () if case.scenario.faults else case.exchanges.values():
            if (profile, exchange.path) not in seen:  # the rule engine/keys-per-profile reads them all
                seen.add((profile, exchange.path))
                _valid(f"engine-{profile}", exchange.response, exchange.path)
                own = schema(f"engine-{profile}")["properties"][exchange.path]
                assert list(faults(own, exchange.response)) == []
    assert {path for _, path in seen} == set(PATHS)


@pytest.mark.parametrize("profile", profiles.names())
@pytest.mark.asyncio
async def test_answers_of_every_profile_fit_their_schema(profile: str) -> None:
    engine = Engine(EngineSettings.model_validate({"profile": profile, "speculative": {}}), seed=1)
    asked = {"messages": [{"role": "user", "content": "hi"}], "logprobs": True, "max_tokens": 9}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(engine.app), base_url="http://engine") as client:
        chat = await client.post("/v1/chat/completions", json={**asked, "return_meta_info": True})
        direct = await client.post("/generate", json={"input_ids": [1, 2], "sampling_params": {"max_new_tokens": 9}})
    _valid(f"engine-{profile}", chat.json(), PATHS[0])
    _valid(f"engine-{profile}", direct.json(), PATHS[1])


@pytest.mark.parametrize("session", ["v1", "v2"])
@pytest.mark.asyncio
async def test_what_the_session_server_answers_fits_its_routes(session: Any) -> None:
    engine = Engine(EngineSettings(), seed=1)
    network = LocalNetwork()
    network.mount("engine", engine.app)
    server = SessionServer(
        RolloutSettings(session=session), engine.tokenizer, "http://engine", transport=network, instance_id="one"
    )
    network.mount("sessions", server.app)
    async with httpx.AsyncClient(transport=network, base_url="http://sessions") as client:
        _valid("session-routes", (await client.get("/health")).json(), "health")
        created = (await client.post("/sessions", json={})).json()
        _valid("session-routes", created, "created")
        place = f"/sessions/{created['session_id']}"
        asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
        assert (await client.post(f"{place}/v1/chat/completions", json=asked)).status_code == 200
        _valid("session-routes", (await client.get(place)).json(), "shown")
        collect = {"max_seq_len": 512, "metadata": {"reward": 1.0}}
        _valid("session-routes", collect, "collect")
        assert (await client.post(f"{place}/samples", json=collect)).status_code == 200
        _valid("session-routes", (await client.post(f"{place}/samples", json={"other": 1})).json(), "refusal")
        assert (await client.delete(place)).status_code == 204
        _valid("session-routes", (await client.get(place)).json(), "refusal")
    await server.aclose()
