"""Faults before an engine of anyone's: same requests, same strikes; all else passes as it is."""

import asyncio
from typing import Any

import httpx
import openai
import pytest

from miles_sim.faults.catalogue import kinds
from miles_sim.faults.chaos import (
    ChaosInjector,
    ChaosPlanError,
    ChaosTransport,
    Tally,
    digest,
    drawn,
    orders_of,
    planned,
    read_plan,
)
from miles_sim.faults.place import Place
from miles_sim.faults.plan import Fault
from miles_sim.faults.strike import Asked

STALLED = [name for name in kinds() if name.startswith("transport-stall")]


@pytest.mark.parametrize(
    ("kind", "met"),
    [
        ("transport-refused", httpx.ReadError),
        ("transport-reset-before", httpx.ReadError),
        ("transport-reset-delivered", httpx.ReadError),
        ("transport-reset-headers", httpx.ReadError),
        ("transport-reset-body", httpx.ReadError),
        ("transport-closed-before", httpx.RemoteProtocolError),
        ("transport-closed-delivered", httpx.RemoteProtocolError),
        ("transport-cut-byte", httpx.RemoteProtocolError),
        ("transport-cut-chunk", httpx.RemoteProtocolError),
        ("http-false-gzip", httpx.DecodingError),
    ],
)
async def test_what_breaks_breaks_once_and_is_journaled(chaos: Any, kind: str, met: type[Exception]) -> None:
    async with chaos(kind, when={"first": 1}) as c:
        with pytest.raises(met):
            await c.chat()
        assert (await c.chat()).status_code == 200
        (line,) = c.journal
        assert (line["kind"], line["attempt"], line["fired"], line["reason"]) == (kind, 0, True, None)
        made = [generation.id for generation in c.engine.generations]
        delivered = kind not in ("transport-refused", "transport-reset-before", "transport-closed-before")
        assert line["lost"] == made[:1] * delivered
        assert c.tally.document() == {
            "requests": 2,
            "fired": 1,
            "could_not": 0,
            "by_kind": [{"kind": kind, "fired": 1, "could_not": 0}],
        }


@pytest.mark.parametrize("kind", STALLED)
async def test_a_stall_is_silence_until_the_client_has_enough(chaos: Any, kind: str) -> None:
    async with chaos(kind, timeout=None) as c:
        with pytest.raises(httpx.ReadTimeout):
            await c.client.send(
                c.client.build_request("POST", "/generate", json={"text": "hi"}, timeout=httpx.Timeout(10, read=0.2))
            )
    assert c.tally.fired[kind] == 1


@pytest.mark.parametrize(
    "kind", ["transport-trickle", "http-gzip", "http-wrong-type", "http-no-type", "transport-duplicate"]
)
async def test_what_changes_no_byte_of_the_reply_is_read_as_ever(chaos: Any, kind: str) -> None:
    async with chaos(kind) as c:
        found = (await c.chat()).json()
        assert found["id"] in [generation.id for generation in c.engine.generations]
        assert len(c.engine.generations) == (2 if kind == "transport-duplicate" else 1)


async def test_an_openai_client_asks_again_and_is_told_how_long_to_wait(chaos: Any) -> None:
    async with (
        chaos("http-429", params={"retry_after": 0}, when={"first": 2}) as c,
        openai.AsyncOpenAI(base_url=c.url + "/v1", api_key="k", max_retries=2) as client,
    ):
        await client.chat.completions.create(model="sim", messages=[{"role": "user", "content": "hi"}])
        assert [line["attempt"] for line in c.journal] == [0, 1]
    async with (
        chaos("http-429", params={"retry_after": 7}) as c,
        openai.AsyncOpenAI(base_url=c.url + "/v1", api_key="k", max_retries=0) as client,
    ):
        with pytest.raises(openai.RateLimitError) as met:
            await client.chat.completions.create(model="sim", messages=[{"role": "user", "content": "hi"}])
        assert met.value.response.headers["retry-after"] == "7"


async def test_a_context_limit_is_told_in_the_words_of_each_route(chaos: Any) -> None:
    async with chaos("http-400-context", params={"context_length": 64}) as c:
        words = "The input (65 tokens) is longer than the model's context length (64 tokens)."
        chat, generate = await c.chat(), await c.client.post("/generate", json={"text": "hi"})
        assert chat.json() == {
            "object": "error",
            "message": words,
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        }
        assert generate.json() == {"error": {"message": words}}
        assert c.engine.generations == []


async def test_a_reply_that_has_nothing_of_the_kind_goes_through_and_says_why(chaos: Any) -> None:
    async with chaos("payload-rows-short") as c:
        assert (await c.chat()).json()["choices"][0]["message"]["content"]
        (line,) = c.journal
        assert (line["fired"], line["reason"]) == (False, "the chat reply has no routed_experts")
    async with chaos("payload-logprobs-missing") as c:
        told = (await c.chat(stream=True, return_meta_info=False)).text
        assert told.endswith("data: [DONE]\n\n")
        assert "text/event-stream" in c.journal[0]["reason"]
    async with chaos("transport-cut-byte", params={"bytes": 10**9}) as c:
        assert (await c.chat()).json()["id"]
        assert c.journal[0]["fired"] is False


async def test_a_stream_is_cut_within_and_passes_whole_the_next_time(chaos: Any) -> None:
    async with chaos("transport-cut-byte", params={"bytes": 100}, when={"first": 1}) as c:
        with pytest.raises(httpx.RemoteProtocolError):
            await c.chat(stream=True, return_meta_info=False)
        whole = await c.chat(stream=True, return_meta_info=False)
        assert whole.text.endswith("data: [DONE]\n\n")
        assert [line["attempt"] for line in c.journal] == [0]


async def test_other_routes_are_never_struck_nor_counted(chaos: Any) -> None:
    async with chaos("http-500") as c:
        assert (await c.client.get("/health")).status_code == 200
        assert (await c.client.get("/v1/models")).status_code == 200
        assert c.tally == Tally()


async def test_a_route_behind_the_upstreams_own_path_is_struck_too() -> None:
    inner = httpx.MockTransport(lambda request: httpx.Response(200, json={"path": request.url.path}))
    pick, tally = drawn(orders_of(["http-503"]), probability=1, seed=0), Tally()
    injector = ChaosInjector(pick, tally, seed=0)
    transport = ChaosTransport(inner, injector, upstream="http://router/eu", tally=tally, write=len)
    async with httpx.AsyncClient(transport=transport) as client:
        assert (await client.post("http://router/eu/generate", json={"text": "hi"})).status_code == 503
        assert (await client.get("http://router/eu/health")).json() == {"path": "/eu/health"}
    assert (tally.requests, tally.fired) == (1, {"http-503": 1})


async def test_the_same_requests_are_struck_alike_in_whatever_order(chaos: Any) -> None:
    pick = drawn(orders_of(["http-5*", "http-4*"]), probability=0.5, seed=4)
    found = []
    for order in (range(24), reversed(range(24))):
        async with chaos(pick=pick) as c:
            answers = {n: (await c.chat(seed=n)).status_code for n in order}
            found.append(({n: answers[n] for n in sorted(answers)}, sorted(map(str, c.journal))))
    assert found[0] == found[1]
    assert len(set(found[0][0].values())) > 1


async def test_requests_at_the_same_time_are_struck_alike(chaos: Any) -> None:
    pick = drawn(orders_of(["http-5*"]), probability=0.5, seed=4)
    async with chaos(pick=pick) as c:
        one = [(await c.chat(seed=n)).status_code for n in range(16)]
    async with chaos(pick=pick) as c:
        other = [r.status_code for r in await asyncio.gather(*(c.chat(seed=n) for n in range(16)))]
    assert one == other


async def test_an_id_of_an_earlier_reply_comes_again(chaos: Any) -> None:
    async with chaos("payload-response-id-duplicate") as c:
        first, second = (await c.chat(seed=1)).json(), (await c.chat(seed=2)).json()
        assert first["id"] == second["id"]
        assert first["choices"] != second["choices"]
        assert [line["reason"] for line in c.journal] == ["no reply was given before this one", None]


def test_content_is_the_same_whatever_the_order_of_its_fields() -> None:
    one, other = (Asked("POST", "/generate", (), body) for body in (b'{"a":1,"b":2}', b'{"b": 2, "a": 1}'))
    assert digest(one) == digest(other)
    assert digest(one) != digest(Asked("POST", "/v1/completions", (), one.body))
    assert digest(Asked("POST", "/generate", (), b"no json")) != digest(Asked("POST", "/generate", (), b"no JSON"))


def test_content_that_nests_too_deep_to_be_written_is_told_by_its_bytes() -> None:
    one, other = (Asked("POST", "/generate", (), b'{"a":' + b"[" * n + b"]" * n + b"}") for n in (300, 301))
    assert digest(one) == digest(Asked("POST", "/generate", (), one.body))
    assert digest(one) != digest(other)


def test_a_draw_strikes_about_as_often_as_it_says() -> None:
    pick = drawn(orders_of(["*"]), probability=0.2, seed=0)
    struck = [pick(Place(0, 0, f"{n:x}", 0)) for n in range(2000)]
    assert 320 < sum(order is not None for order in struck) < 480
    assert len({order.kind.name for order in struck if order}) > 80
    assert drawn(orders_of(["*"]), probability=0.0, seed=0)(Place(0, 0, "a", 0)) is None


@pytest.mark.parametrize(
    ("faults", "named"),
    [
        ([Fault(kind="http-5O3")], "kind: 'http-5O3' is not one of"),
        ([Fault(kind="http-503", params={"wait": 3})], "params"),
        ([Fault(kind="agent-crash-before")], r"faults\[0\]: kind 'agent-crash-before' is of the layer 'agent'"),
        ([Fault(kind="http-503", where={"rollout": 1})], r"faults\[0\]: where.rollout: an engine knows no rollouts"),
    ],
)
def test_a_plan_that_cannot_be_done_here_is_refused_by_its_place(faults: Any, named: str) -> None:
    with pytest.raises(ChaosPlanError, match=named):
        planned(faults)


def test_a_glob_that_names_nothing_is_refused_and_a_plan_is_read_by_line(tmp_path: Any) -> None:
    with pytest.raises(ChaosPlanError, match="'agent-\\*' names none of the"):
        orders_of(["http-*", "agent-*"])
    file = tmp_path / "plan.yaml"
    file.write_text("faults:\n  - {kind: http-503, when: {first: 2}}\n", encoding="utf-8")
    assert read_plan(file) == (Fault(kind="http-503", when={"first": 2}),)  # type: ignore[arg-type]
    file.write_text("faults:\n  - {kind: http-503, when: {fist: 2}}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"plan\.yaml: line 2: faults\[0\]\.when\.fist"):
        read_plan(file)
