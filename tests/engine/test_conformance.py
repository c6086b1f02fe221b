"""Every answer of a profile is read by the real release: its pydantic models, its arithmetic, miles' own code.

Needs a real sglang: in the interpreter that MILES_SIM_SGLANG_PYTHON names, or, unpacked, in the folders of
MILES_SIM_SGLANG_PATH for that interpreter; and the one that miles-rl brings, in MILES_SIM_MILES_PYTHON.
"""

import asyncio
import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from miles_sim.engine.engine import Engine
from miles_sim.rows import rows
from miles_sim.transport import LocalNetwork, serve

Make = Callable[..., Engine]
Body = dict[str, Any]
READERS = Path(__file__).parent / "readers"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
CALL = {"name": "look", "arguments": {"at": "x"}}
RULES = [
    {"contains": "call", "reply": {"tokens": 4, "tool_calls": [CALL, CALL]}},
    {"contains": "empty", "reply": {"tokens": 0}},
    {"contains": "break", "reply": {"tokens": 9, "abort_after": 5}},
    {"contains": "bytes", "reply": {"text": "é🙂 e"}},
]


def _releases() -> Iterator[Any]:
    python, miles = os.environ.get("MILES_SIM_SGLANG_PYTHON"), os.environ.get("MILES_SIM_MILES_PYTHON")
    folders = os.environ.get("MILES_SIM_SGLANG_PATH", "")
    for folder in folders.split(os.pathsep) if folders else [""]:
        yield pytest.param((python, folder), id=Path(folder).name or "installed", marks=pytest.mark.sglang)
    yield pytest.param((miles, ""), id="miles-rl", marks=pytest.mark.miles)


@pytest.fixture(scope="module", params=_releases())
def reader(request: pytest.FixtureRequest) -> Callable[..., str]:
    """`reader(script, *arguments, given="")` is what the script prints in the release's interpreter."""
    python, folder = request.param

    def run(script: str, *arguments: str, given: str = "") -> str:
        environment = {**os.environ, "PYTHONPATH": folder}
        command = [python, str(READERS / script), *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def profile(reader: Callable[..., str]) -> str:
    return reader("sglang_reader.py", "--version").strip()


def chats() -> Iterator[Body]:
    """Chat requests that between them ask for everything that a choice can hold."""
    flags = {"logprobs": True, "return_meta_info": True, "return_prompt_token_ids": True, "return_token_ids": True}
    details = dict.fromkeys(
        ("return_cached_tokens_details", "return_spec_tokens_details", "return_routed_experts"), True
    )
    ids = {"return_input_ids_in_sglext": True, "return_output_ids_in_sglext": True}
    for text in ("hello", "call", "empty", "break", "bytes"):
        for fields in ({}, flags, {**flags, **details, **ids}, {"n": 3, "logprobs": True, "top_logprobs": 2}):
            yield {"messages": [{"role": "user", "content": text}], "tools": TOOLS, "max_tokens": 30, **fields}
    for choice in ("required", {"type": "function", "function": {"name": "look"}}):
        yield {"messages": [{"role": "user", "content": "hello"}], "tools": TOOLS, "tool_choice": choice, **flags}
    for grammar in ({"regex": "[a-z]{9}"}, {"response_format": {"type": "json_object"}}, {"logit_bias": {"300": 100}}):
        yield {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 40, "logprobs": True, **grammar}
    yield {"messages": [{"role": "user", "content": "think"}], "stop": ["e"], "chat_template_kwargs": {"think": True}}
    yield {"messages": [{"role": "user", "content": "again"}], "input_ids": list(range(300, 360)), **flags, **details}
    yield {"messages": [{"role": "user", "content": "again"}], "input_ids": list(range(300, 380)), **flags, **details}


def streams() -> Iterator[Body]:
    options = {"include_usage": True, "continuous_usage_stats": True}
    for number, asked in enumerate(chats()):
        kept = {
            key: value for key, value in asked.items() if key not in ("return_meta_info", "return_prompt_token_ids")
        }
        kept.pop("return_token_ids", None)
        yield {**kept, "stream": True, **({"stream_options": options} if number % 2 else {})}


def completions() -> Iterator[Body]:
    for prompt in ("hello", ["hello", "bytes"], list(range(300, 320))):
        for fields in ({}, {"logprobs": 2}, {"logprobs": 1, "echo": True}, {"n": 2}, {"return_routed_experts": True}):
            yield {"model": "sim", "prompt": prompt, "max_tokens": 12, **fields}


def refused() -> Iterator[tuple[str, Any]]:
    for path in (CHAT, COMPLETIONS):
        yield from ((path, body) for body in ({}, [], {"messages": []}, {"messages": 3}, {"prompt": []}))
    message = {"messages": [{"role": "user", "content": "hello"}]}
    bad: tuple[Body, ...] = ({"max_tokens": 10**6}, {"top_p": 3}, {"tool_choice": "required"}, {"input_ids": [10**6]})
    yield from ((CHAT, message | fields) for fields in bad)


async def answers(engine: Engine) -> list[tuple[str, Body]]:
    """(kind, body) of every answer."""
    network = LocalNetwork()
    network.mount("engine", engine.app)
    found: list[tuple[str, Body]] = []
    async with httpx.AsyncClient(transport=network, base_url="http://engine") as client:
        found += [("chat", (await client.post(CHAT, json=asked)).raise_for_status().json()) for asked in chats()]
        for asked in streams():
            found += [(kind(body), body) for body in events(await client.post(CHAT, json=asked), "chat chunk")]
        for asked in completions():
            answer = (await client.post(COMPLETIONS, json=asked)).raise_for_status()
            found.append(("completion", answer.json()))
            answer = await client.post(COMPLETIONS, json={**asked, "stream": True})
            found += [(kind(body, "completion chunk"), body) for body in events(answer, "completion chunk")]
        found.append(("models", (await client.get("/v1/models")).json()))
        for path, asked in refused():
            answer = await client.post(path, json=asked)
            if answer.status_code == 400:
                found.append(("error", answer.json()))
    return found


def events(answer: httpx.Response, what: str) -> Iterator[Body]:
    assert answer.status_code == 200, (what, answer.text)
    for line in answer.text.split("\n\n"):
        data = line.removeprefix("data: ")
        if data and data != "[DONE]":
            yield json.loads(data)


def kind(body: Body, chunk: str = "chat chunk") -> str:
    return "error" if "error" in body else chunk


async def test_the_releases_models_read_every_answer_without_loss(
    make_engine: Make, reader: Callable[..., str], profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = make_engine(
        profile=profile,
        rules=RULES,
        speculative={"algorithm": "EAGLE"},
        experts={"layers": 2, "topk": 2},
        cache_report=True,
    )
    told = [(kind, body.get("error", body) if kind == "error" else body) for kind, body in await answers(engine)]
    tasks = {"answers": [{"kind": kind, "body": body} for kind, body in told], "steps": []}
    read = json.loads(reader("sglang_reader.py", given=json.dumps(tasks)))
    assert read["release"] == profile
    against = Counter(
        f"{kind}: {finding}" for (kind, _), findings in zip(told, read["found"], strict=True) for finding in findings
    )
    counts = Counter(kind for kind, _ in told)
    with capsys.disabled():
        print(f"\n{profile}: {', '.join(f'{count} {kind}' for kind, count in sorted(counts.items()))} read")
    assert dict(against) == {}
    assert set(counts) == {"chat", "chat chunk", "completion", "completion chunk", "models", "error"}


async def test_the_releases_own_arithmetic_gives_the_counters(
    make_engine: Make, reader: Callable[..., str], profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told, steps = [], []
    for draft_tokens in (2, 4, 8):
        speculative = {"algorithm": "EAGLE", "draft_tokens": draft_tokens, "acceptance": [0.9, 0.5]}
        engine = make_engine(profile=profile, speculative=speculative)
        network = LocalNetwork()
        network.mount("engine", engine.app)
        async with httpx.AsyncClient(transport=network, base_url="http://engine") as client:
            for count in (1, 2, 3, 9, 40, 200):
                asked = {"text": f"tell {count}", "sampling_params": {"max_new_tokens": count}}
                meta = (await client.post("/generate", json=asked)).raise_for_status().json()["meta_info"]
                told.append({key: value for key, value in meta.items() if key.startswith("spec_")})
        for generation in engine.generations:
            assert generation.spec is not None
            spec = generation.spec.model_dump(mode="json")
            steps.append({"draft_tokens": draft_tokens, "completion_tokens": len(generation.output_ids), **spec})
    read = json.loads(reader("sglang_reader.py", given=json.dumps({"answers": [], "steps": steps})))
    with capsys.disabled():
        print(f"\n{profile}: counters of {len(steps)} generations agree with the release's own")
    assert told == read["counters"]
    assert any(told)


async def test_a_foreign_key_a_wrong_type_and_another_order_are_found(
    make_engine: Make, reader: Callable[..., str], profile: str
) -> None:
    network = LocalNetwork()
    network.mount("engine", make_engine(profile=profile).app)
    async with httpx.AsyncClient(transport=network, base_url="http://engine") as client:
        answer = (await client.post(CHAT, json=next(chats()))).json()
    broken = [{**answer, "id": 7}, dict(reversed(answer.items())), {**answer, "usage": {**answer["usage"], "new": 1}}]
    tasks = [{"kind": "chat", "body": body} for body in (answer, *broken)]
    read = json.loads(reader("sglang_reader.py", given=json.dumps({"answers": tasks, "steps": []})))
    right, kind, order, foreign = read["found"]
    assert right == []
    assert "valid string" in kind[0]
    assert order == ["keys in another order"]
    assert foreign == [".usage.new: not in the model"]


@pytest.fixture(scope="module")
def miles() -> str:
    return os.environ["MILES_SIM_MILES_PYTHON"]


@pytest.mark.miles
async def test_miles_own_generate_reads_the_engine(make_engine: Make, miles: str, tmp_path: Path) -> None:
    engine = make_engine(
        profile="miles-rl-0.0.2",
        rules=[RULES[2]],
        default_reply={"tokens": 9},
        speculative={"algorithm": "EAGLE"},
        experts={"layers": 3, "topk": 2},
    )
    asked = [("hello", 40), ("hello", 5), ("break", 40)]
    folder = engine.tokenizer.save(tmp_path)
    async with serve(engine.app) as url:
        command = [miles, str(READERS / "miles_reader.py"), url, str(folder), json.dumps(asked)]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said, log = await process.communicate()
    assert process.returncode == 0, log.decode()
    samples = json.loads(said)
    assert [sample["status"] for sample in samples] == ["completed", "truncated", "aborted"]
    for sample, generation in zip(samples, engine.generations, strict=True):
        assert generation.endpoint == "generate"
        assert generation.spec is not None
        assert generation.routed_experts is not None
        ids = (*generation.prompt_ids, *generation.output_ids)
        assert tuple(sample["tokens"]) == ids
        assert tuple(sample["rollout_log_probs"]) == generation.logprobs
        assert sample["response_length"] == len(generation.output_ids)
        assert sample["weight_versions"] == [generation.weight_version]
        assert sample["rollout_routed_experts"] == rows(generation.routed_experts, ids).tolist()
        assert sample["spec_info"] == {
            "spec_accept_token_num": generation.spec.accepted,
            "spec_draft_token_num": generation.spec.drafted,
            "spec_verify_ct": generation.spec.verify_ct,
            "completion_token_num": len(generation.output_ids),
        }
        assert sample["prefix_cache_info"]["cached_tokens"] == generation.cached_tokens
