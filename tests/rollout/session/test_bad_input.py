"""Whatever is sent, the answer is an error that names it, and the session is as it was."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.responses import Response

from miles_sim.rollout.session.server import SessionServer
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ByteTokenizer
from miles_sim.transport import LocalNetwork


async def chunks(size: int) -> Any:
    for _ in range(size):
        yield b"x"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/samples", "/anything/else"])
@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_above_the_limit_is_413_on_every_route(opened: Any, user: Any, path: str, declared: bool) -> None:
    sessions = await opened(max_body_bytes=100)
    content: Any = b"x" * 101 if declared else chunks(101)
    response = await sessions.client.post(sessions.url + path, content=content)
    assert response.status_code == 413
    assert "max_body_bytes=100" in response.json()["error"]
    assert not sessions.engine.requests
    await sessions.say(user("one"))


@pytest.mark.parametrize(
    ("method", "path", "status_code"),
    [("GET", "/nope", 404), ("POST", "/health", 405), ("GET", "/sessions", 405), ("PUT", "/sessions/x", 405)],
)
async def test_a_route_that_is_not_there_is_named(opened: Any, method: str, path: str, status_code: int) -> None:
    sessions = await opened()
    response = await sessions.client.request(method, path)
    assert response.status_code == status_code
    what = "no such route" if status_code == 404 else "not allowed"
    assert response.json() == {"error": f"{method} {path}: {what}"}
    assert ("allow" in response.headers) is (status_code == 405)


async def test_health_tells_the_instance(user: Any) -> None:
    server = SessionServer(RolloutSettings(), ByteTokenizer(), "http://engine", instance_id="one of two")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(server.app), base_url="http://sessions") as client:
        assert (await client.get("/health")).json() == {"status": "ok", "session_server_instance_id": "one of two"}
    await server.aclose()


async def test_a_tokenizer_that_breaks_is_500_by_its_error(opened: Any, user: Any) -> None:
    class Broken(ByteTokenizer):
        def decode(self, ids: Any, **options: Any) -> str:
            raise KeyError("piece")

    sessions = await opened(Broken())
    sessions.engine.tokenizer = ByteTokenizer()
    await sessions.say(user("one"))
    response = await sessions.client.post(sessions.url + "/samples")
    assert (response.status_code, response.json()) == (500, {"error": "internal: KeyError: 'piece'"})
    assert await sessions.texts() == ["r1"]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize("depth", [260, 900])
@pytest.mark.parametrize("matcher", ["strict", "loose_tool_call", "role_content_only"])
async def test_nesting_that_cannot_be_sent_on_is_400(opened: Any, user: Any, depth: int, matcher: str) -> None:
    sessions = await opened(message_matcher=matcher)
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": nested(depth)}}
    first = await sessions.say(user("one"))
    for messages in ([user("x"), {"role": "assistant", "content": "", "tool_calls": [call]}, user("y")], [user("x")]):
        extra = {} if len(messages) > 1 else {"custom_params": nested(depth)}
        response = await sessions.chat(*messages, **extra)
        assert response.status_code == 400
    response = await sessions.client.post(sessions.url + "/samples", json={"metadata": nested(depth)})
    assert response.status_code == 422
    assert "nested deeper than" in response.json()["error"]
    await sessions.say(user("one"), first, user("two"))
    assert len((await sessions.show())["records"]) == 2


@pytest.mark.parametrize("tools_change", ["branch", "keep"])
@pytest.mark.parametrize("session", ["v1", "v2"])
async def test_tools_nested_too_deeply_are_400(opened: Any, user: Any, session: str, tools_change: str) -> None:
    sessions = await opened(session=session, tools_change=tools_change)
    first = await sessions.say(user("one"))
    tools = [{"type": "function", "function": nested(300)}]
    for messages in ([user("x")], [user("one"), first, user("two")]):
        response = await sessions.chat(*messages, tools=tools)
        assert response.status_code == 400, response.text
    await sessions.say(user("one"), first, user("two"))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"stream": "yes"}, "stream: 'yes'"),
        ({"stream": 1}, "stream: 1"),
        ({"reasoning_effort": 3}, "reasoning_effort: int"),
        ({"tools": [3]}, "tools: list"),
    ],
)
async def test_a_field_of_the_wrong_type_is_400_by_name(opened: Any, user: Any, fields: Any, named: str) -> None:
    sessions = await opened()
    response = await sessions.chat(user("one"), **fields)
    assert response.status_code == 400
    assert named in response.json()["error"]
    assert not sessions.engine.requests


async def test_an_unknown_field_of_a_samples_request_is_400_by_name(opened: Any) -> None:
    sessions = await opened()
    response = await sessions.client.post(sessions.url + "/samples", json={"max_seqlen": 3})
    assert response.status_code == 400
    assert response.json() == {"error": "max_seqlen: not one of max_seq_len, metadata"}


@pytest.mark.parametrize("session", ["v1", "v2"])
@pytest.mark.parametrize(
    ("spelling", "named"),
    [("NaN", "e2e_latency: nan"), ("-Infinity", "e2e_latency: -inf"), (r'"\ud800"', "cannot be sent on")],
)
async def test_a_reply_that_is_json_to_some_only_is_502_and_unrecorded(
    opened: Any, user: Any, session: str, spelling: str, named: str
) -> None:
    sessions = await opened(session=session)

    def spelt(body: Any) -> Response:
        reply = sessions.engine.sound(body)
        reply["choices"][0]["meta_info"]["e2e_latency"] = "HERE"
        return Response(json.dumps(reply).replace('"HERE"', spelling), media_type="application/json")

    sessions.engine.script.append(spelt)
    response = await sessions.chat(user("one"))
    assert response.status_code == 502
    assert named in response.json()["error"]
    assert await sessions.texts() == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        "messages",
        "tools",
        "stream",
        "n",
        "chat_template_kwargs",
        "reasoning_effort",
        "input_ids",
        "metadata",
        "max_seq_len",
    ]
)
MESSAGE = st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "reasoning_content"]), JSON)


@settings(max_examples=40, deadline=None)
@given(
    body=st.dictionaries(NAMES, JSON | st.lists(MESSAGE, max_size=2), max_size=4) | JSON,
    path=st.sampled_from(["v1/chat/completions", "samples"]),
    session=st.sampled_from(["v1", "v2"]),
)
async def test_no_body_breaks_the_server_or_changes_a_session_it_is_refused_by(
    body: Any, path: str, session: str, new_engine: Any
) -> None:
    engine, network = new_engine(), LocalNetwork()
    server = SessionServer(RolloutSettings(session=session), engine.tokenizer, "http://engine", transport=network)
    network.mount("engine", engine.app)
    network.mount("sessions", server.app)
    async with httpx.AsyncClient(transport=network, base_url="http://sessions") as client:
        url = "/sessions/" + (await client.post("/sessions")).json()["session_id"]
        before = (await client.get(url)).content
        response = await client.post(f"{url}/{path}", content=json.dumps(body))
        assert response.status_code in (200, 400, 422)
        if response.status_code != 200:
            assert response.json()["error"]
            assert (await client.get(url)).content == before
    assert server.requests_open == 0
    await server.aclose()


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_of_just_the_limit_is_taken(opened: Any, declared: bool) -> None:
    sessions = await opened(max_body_bytes=100)
    content: Any = b"x" * 100 if declared else chunks(100)
    assert (await sessions.client.post(f"{sessions.url}/any", content=content)).status_code == 203
