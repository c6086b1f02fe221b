import asyncio
import base64
import gzip
import json
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from miles_sim.rollout.errors import SettingsError
from miles_sim.rollout.session.server import SessionServer
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ByteTokenizer

CALLS = [
    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
    {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
]


@pytest.fixture(params=["v1", "v2"])
async def sessions(request: Any, opened: Any) -> Any:
    return await opened(session=request.param)


async def test_a_session_is_created_shown_and_deleted(sessions: Any, user: Any) -> None:
    assert (await sessions.client.get("/health")).json() == {"status": "ok"}
    assert sessions.server.sessions_open == 1
    assert (await sessions.show())["metadata"]["accumulated_token_ids"] == []
    await sessions.say(user("one"), temperature=0.3)
    shown = await sessions.show()
    (record,) = shown["records"]
    assert shown["session_id"] == sessions.session
    assert (record["path"], record["status_code"], record["method"]) == ("/v1/chat/completions", 200, "POST")
    assert record["request"]["temperature"] == 0.3
    assert 0 < record["request_timestamp"] <= record["timestamp"]
    assert record["request"]["messages"] == [user("one")]
    said = [entry[1] for entry in record["response"]["choices"][0]["meta_info"]["output_token_logprobs"]]
    assert shown["metadata"]["accumulated_token_ids"] == [*record["request"]["input_ids"], *said]
    assert (await sessions.client.delete(sessions.url)).status_code == 204
    assert sessions.server.sessions_open == 0
    assert (await sessions.client.get(sessions.url)).status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/samples"),
        ("POST", "/v1/chat/completions"),
        ("GET", "/v1/models"),
    ],
)
async def test_an_unknown_session_is_404_by_its_id_on_every_route(sessions: Any, method: str, path: str) -> None:
    response = await sessions.client.request(method, "/sessions/nope" + path)
    assert response.status_code == 404
    assert response.json() == {"error": "session_id: 'nope' is no open session"}
    assert not sessions.engine.requests


async def test_the_engine_gets_the_forced_fields_and_the_routing_key(sessions: Any, user: Any) -> None:
    await sessions.client.post(
        f"{sessions.url}/v1/chat/completions?x=1",
        content=json.dumps({"messages": [user("ö")], "stream": False, "logprobs": False}),
        headers={"x-smg-routing-key": "mine", "authorization": "Bearer k", "connection": "x-hop", "x-hop": "1"},
    )
    request, raw = sessions.engine.requests[0]
    body = json.loads(raw)
    assert body["logprobs"] is body["return_meta_info"] is True
    assert body["input_ids"] == sessions.engine.tokenizer.render([user("ö")])
    assert request.headers.getlist("x-smg-routing-key") == [sessions.session]
    assert request.headers.getlist("content-length") == [str(len(raw))]
    assert request.headers["authorization"] == "Bearer k"
    assert request.headers["host"] == "engine"
    assert "x-hop" not in request.headers
    assert request.url.query == "x=1"


async def test_replay_data_is_kept_from_the_client_and_in_the_record(opened: Any, user: Any) -> None:
    sessions = await opened(routing_replay=True)

    told = {}

    def with_replay(reply: Any) -> None:
        meta = reply["choices"][0]["meta_info"]
        rows = bytes(4 * (meta["prompt_tokens"] + meta["completion_tokens"] - 1))
        told["rows"] = base64.b64encode(rows).decode()
        meta |= {"routed_experts": told["rows"], "indexer_topk": told["rows"]}
        reply["sglext"] = {"routed_experts": told["rows"], "other": 1}

    sessions.engine.change(with_replay)
    response = await sessions.chat(user("one"))
    assert "AAAA" not in response.text
    assert "indexer_topk" not in response.text
    assert response.json()["sglext"] == {"other": 1}
    (record,) = (await sessions.show())["records"]
    assert record["response"]["choices"][0]["meta_info"]["routed_experts"] == told["rows"]
    assert sessions.engine.bodies[0]["return_routed_experts"] is True


async def test_a_streaming_client_gets_one_chunk_with_indexed_calls_and_usage(sessions: Any, user: Any) -> None:
    sessions.engine.then(content="", tool_calls=CALLS, reasoning_content="hm")
    response = await sessions.chat(user("one"), stream=True, stream_options={"include_usage": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert (response.headers["cache-control"], response.headers["x-accel-buffering"]) == ("no-cache", "no")
    data, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    chunk = json.loads(data.removeprefix("data: "))
    (choice,) = chunk["choices"]
    said = (await sessions.show())["records"][0]["response"]
    assert {**chunk, "choices": []} == {**said, "object": "chat.completion.chunk", "choices": []}
    assert chunk["usage"]["completion_tokens"] == 1
    assert (choice["index"], choice["delta"]["role"], choice["delta"]["content"]) == (0, "assistant", "")
    assert [call["index"] for call in choice["delta"]["tool_calls"]] == [0, 1]
    assert choice["delta"]["reasoning_content"] == "hm"
    assert choice["finish_reason"] == "tool_calls"
    assert "stream" not in sessions.engine.bodies[0]
    assert len((await sessions.show())["records"]) == 1


async def test_a_streaming_client_gets_errors_as_they_are(sessions: Any, user: Any) -> None:
    sessions.engine.answer(Response("busy", status_code=429, headers={"retry-after": "1"}))
    response = await sessions.chat(user("one"), stream=True)
    assert (response.status_code, response.text, response.headers["retry-after"]) == (429, "busy", "1")


async def test_an_engines_refusal_passes_through_unrecorded(sessions: Any, user: Any) -> None:
    sessions.engine.answer(
        Response(b'{"object": "error",  "code": 400}', status_code=400, media_type="application/json")
    )
    response = await sessions.chat(user("one"))
    assert (response.status_code, response.content) == (400, b'{"object": "error",  "code": 400}')
    assert response.headers["content-length"] == str(len(response.content))
    assert await sessions.texts() == []
    await sessions.say(user("one"))


@pytest.mark.parametrize("status_code", [200, 400])
async def test_headers_of_the_engines_connection_stay_there(sessions: Any, user: Any, status_code: int) -> None:
    about_the_connection = {"server": "x", "date": "y", "connection": "close", "keep-alive": "1"}

    def reply(body: Any) -> Response:
        sound = sessions.engine.sound(body)
        headers = about_the_connection | {"x-request-id": "7"}
        return Response(json.dumps(sound), status_code, headers, "application/json")

    sessions.engine.script.append(reply)
    response = await sessions.chat(user("one"))
    assert response.status_code == status_code
    assert not set(about_the_connection) & set(response.headers)
    assert response.headers["x-request-id"] == "7"
    assert response.headers.get_list("content-type") == ["application/json"]
    assert response.headers.get_list("content-length") == [str(len(response.content))]


async def test_a_reply_that_cannot_be_recorded_is_502_and_leaves_the_session_as_it_was(
    sessions: Any, user: Any
) -> None:
    sessions.engine.change(lambda reply: reply["choices"][0].pop("meta_info"))
    response = await sessions.chat(user("one"))
    assert response.status_code == 502
    assert "choices[0].meta_info" in response.json()["error"]
    assert await sessions.texts() == []


async def test_an_engine_that_dropped_input_ids_is_caught(sessions: Any, user: Any) -> None:
    sessions.engine.change(lambda reply: reply["choices"][0]["meta_info"].update(prompt_tokens=3))
    response = await sessions.chat(user("one"))
    assert response.status_code == 502
    assert "prompt_tokens: 3, but input_ids held" in response.json()["error"]


async def test_an_unreachable_engine_is_502() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    server = SessionServer(RolloutSettings(), ByteTokenizer(), "http://engine", transport=httpx.MockTransport(refuse))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(server.app), base_url="http://sessions") as client:
        session = (await client.post("/sessions")).json()["session_id"]
        for path, body in (("v1/chat/completions", {"messages": [{"role": "user"}]}), ("flush_cache", {})):
            response = await client.post(f"/sessions/{session}/{path}", json=body)
            assert response.status_code == 502
            assert response.json() == {"error": "engine: ConnectError: refused"}
    assert server.requests_open == 0


async def test_an_engine_that_never_answers_is_502_after_the_timeout_and_is_let_go(opened: Any, user: Any) -> None:
    sessions = await opened(request_timeout=0.01)
    hold = sessions.engine.hold()
    response = await asyncio.wait_for(sessions.chat(user("one")), timeout=4)
    assert response.status_code == 502
    assert "request_timeout=0.01 s" in response.json()["error"]
    assert hold.abandoned.is_set()
    await sessions.say(user("one"))


async def test_messages_that_the_template_refuses_are_400(sessions: Any, user: Any) -> None:
    response = await sessions.chat({"role": "user", "content": [{"type": "text", "text": "x"}]})
    assert response.status_code == 400
    assert "the chat template refuses them" in response.json()["error"]
    response = await sessions.chat(user("x"), chat_template_kwargs={"messages": []})
    assert response.status_code == 400
    assert not sessions.engine.requests


async def test_malformed_tool_arguments_can_be_replayed(sessions: Any, user: Any) -> None:
    sessions.engine.then(
        content="", tool_calls=[{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": '}}]
    )
    first = await sessions.say(user("one"))
    await sessions.say(user("one"), first, {"role": "tool", "content": "bad", "tool_call_id": "c"})


async def test_a_client_that_leaves_frees_the_engine_and_the_session(sessions: Any, user: Any) -> None:
    hold = sessions.engine.hold()
    asked = asyncio.create_task(sessions.chat(user("one")))
    await hold.arrival()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert hold.abandoned.is_set()
    assert sessions.server.requests_open == 0
    assert await sessions.texts() == []
    await sessions.say(user("one"))


async def test_a_session_deleted_under_a_request_answers_it_404_and_frees_the_engine(sessions: Any, user: Any) -> None:
    hold = sessions.engine.hold()
    asked = asyncio.create_task(sessions.chat(user("one")))
    await hold.arrival()
    assert sessions.server.requests_open == 1
    assert (await sessions.client.delete(sessions.url)).status_code == 204
    response = await asyncio.wait_for(asked, timeout=10)
    assert response.status_code == 404
    assert "is no open session" in response.json()["error"]
    assert hold.abandoned.is_set()
    assert (await sessions.chat(user("one"))).status_code == 404


async def test_a_session_deleted_just_as_its_answer_arrives_answers_404_too(
    sessions: Any, user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = sessions.server._upstream.send

    async def overtaken(call: Any, *, unless: Any) -> Any:
        answer = await send(call, unless=unless)
        await sessions.client.delete(sessions.url)
        return answer

    monkeypatch.setattr(sessions.server._upstream, "send", overtaken)
    assert (await sessions.chat(user("one"))).status_code == 404


async def test_closing_the_server_ends_what_is_under_way(sessions: Any, user: Any) -> None:
    hold = sessions.engine.hold()
    asked = asyncio.create_task(sessions.chat(user("one")))
    await hold.arrival()
    await sessions.server.aclose()
    assert (await asyncio.wait_for(asked, timeout=10)).status_code == 404
    assert sessions.server.sessions_open == 0


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
async def test_a_method_that_only_asks_goes_to_the_engine_too(sessions: Any, method: str) -> None:
    response = await sessions.client.request(method, f"{sessions.url}/a", headers={"origin": "x"})
    assert response.status_code == {"HEAD": 203, "OPTIONS": 405}[method]
    assert "error" not in response.text  # what is not allowed is so by the engine's word


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_any_other_path_goes_to_the_engine(sessions: Any, method: str) -> None:
    response = await sessions.client.request(method, f"{sessions.url}/a%20b/c?d=e", content=b"x")
    assert (response.status_code, response.text) == (203, f"{method} /a%20b/c?d=e")
    request, raw = sessions.engine.requests[-1]
    assert raw == b"x"
    assert request.headers["x-smg-routing-key"] == sessions.session
    assert (await sessions.show())["records"] == []


async def test_a_server_that_is_shut_down_closes_its_sessions(sessions: Any) -> None:
    app = sessions.server.app
    async with app.router.lifespan_context(app):
        assert sessions.server.sessions_open == 1
    assert sessions.server.sessions_open == 0


async def test_a_path_goes_on_with_the_characters_that_it_came_with(sessions: Any) -> None:
    path = "/a:b@c!d$e&f'(g)*h+i,j;k=l~m"
    assert (await sessions.client.get(f"{sessions.url}{path}?q")).text == f"GET {path}?q"


@pytest.mark.parametrize("body", [b'{"max_seq_len": 1}', b'{"max_seq_len": null}', b"{}", b""])
async def test_samples_may_be_as_short_as_one_id(sessions: Any, body: bytes) -> None:
    assert (await sessions.client.post(f"{sessions.url}/samples", content=body)).status_code == 200


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"{", "body"),
        (b"[]", "body"),
        (b'{"max_seq_len": 0}', "max_seq_len: 0"),
        (b'{"max_seq_len": "9"}', "max_seq_len: '9'"),
        (b'{"max_seq_len": true}', "max_seq_len: True"),
        (b'{"metadata": []}', "metadata: list"),
    ],
)
async def test_a_samples_request_that_cannot_be_read_is_400(sessions: Any, body: bytes, named: str) -> None:
    response = await sessions.client.post(f"{sessions.url}/samples", content=body)
    assert response.status_code == 400
    assert named in response.json()["error"]


async def test_sessions_do_not_see_each_other(sessions: Any, user: Any) -> None:
    await sessions.say(user("one"))
    other = (await sessions.client.post("/sessions")).json()["session_id"]
    assert (await sessions.client.get(f"/sessions/{other}")).json()["records"] == []


async def test_a_cookie_of_the_engine_goes_to_its_client_and_to_no_other_session(sessions: Any, user: Any) -> None:
    def with_cookie(body: Any) -> Response:
        response = Response(json.dumps(sessions.engine.sound(body)), media_type="application/json")
        response.set_cookie("worker", "7")
        return response

    sessions.engine.script.append(with_cookie)
    response = await sessions.chat(user("one"))
    assert response.headers["set-cookie"].startswith("worker=7")
    sessions.client.cookies.clear()
    other = (await sessions.client.post("/sessions")).json()["session_id"]
    await sessions.client.post(f"/sessions/{other}/v1/chat/completions", json={"messages": [user("one")]})
    assert "cookie" not in sessions.engine.requests[-1][0].headers


async def test_a_compressed_answer_arrives_readable(sessions: Any, user: Any) -> None:
    def compressed(body: Any) -> Response:
        content = gzip.compress(json.dumps(sessions.engine.sound(body)).encode())
        return Response(content, headers={"content-encoding": "gzip"}, media_type="application/json")

    sessions.engine.script.append(compressed)
    response = await sessions.chat(user("one"))
    assert response.json()["choices"][0]["message"]["content"] == "r1"
    assert "content-encoding" not in response.headers


async def test_an_id_that_was_answered_before_is_refused_and_nothing_is_kept_of_it(opened: Any, user: Any) -> None:
    sessions = await opened()
    first = await sessions.say(user("one"))
    name = (await sessions.show())["records"][0]["response"]["id"]
    sessions.engine.change(lambda reply: reply.update(id=name))
    refused = await sessions.chat(user("one"), first, user("two"))
    assert refused.status_code == 502
    assert f"id: '{name}' is that of an earlier reply of this session" in refused.text
    await sessions.say(user("one"), first, user("two"))
    assert len((await sessions.show())["records"]) == 2


async def test_the_id_of_a_reply_that_was_refused_is_taken_too(opened: Any, user: Any) -> None:
    sessions = await opened()
    sessions.engine.change(lambda reply: reply.update(id="of-a-cache", choices=[]))
    assert (await sessions.chat(user("one"))).status_code == 502
    sessions.engine.change(lambda reply: reply.update(id="of-a-cache"))
    refused = await sessions.chat(user("one"))
    assert refused.status_code == 502
    assert "id: 'of-a-cache' is that of an earlier reply of this session" in refused.text
    for spoiled in (b"no JSON", b"[]", b'{"id": 7}'):
        sessions.engine.answer(Response(spoiled, media_type="application/json"))
        assert (await sessions.chat(user("one"))).status_code == 502
    await sessions.say(user("one"))
    assert len((await sessions.show())["records"]) == 1


async def test_a_redirect_is_no_answer_that_a_client_could_follow_round_the_session(opened: Any, user: Any) -> None:
    sessions = await opened()
    sessions.engine.answer(Response(status_code=307, headers={"location": "http://elsewhere/v1/chat/completions"}))
    refused = await sessions.chat(user("one"))
    assert refused.status_code == 502
    assert "location" not in refused.headers
    assert "engine: status 307: redirects are not followed" in refused.text


@pytest.mark.parametrize("setting", ["message_matcher", "sample_picker", "sample_postprocessor"])
def test_a_function_that_cannot_be_had_is_refused_before_anything_is_served(setting: str) -> None:
    for value in ("drop_retry", "no.such.module:fn"):
        with pytest.raises(SettingsError, match=f"^{setting}: '{value}'"):
            SessionServer(RolloutSettings(**{setting: value}), ByteTokenizer(), "http://engine")
