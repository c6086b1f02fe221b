"""Several engines: one voice, own memories, ids that never collide, one life."""

import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from miles_sim.engine.fleet import Fleet, FleetError, ports_of
from miles_sim.engine.settings import EngineSettings
from miles_sim.transport import ListenError

CHAT = "/v1/chat/completions"
Body = dict[str, Any]


@pytest.fixture
def fleet() -> Fleet:
    tool = {"tokens": 4, "tool_calls": [{"name": "look", "arguments": {}}]}
    settings = {"rules": [{"contains": "call", "reply": tool}], "default_reply": {"tokens": 12}}
    return Fleet(EngineSettings.model_validate(settings), 3, seed=5)


async def said(urls: tuple[str, ...], text: str, **fields: Any) -> list[Body]:
    body = {"messages": [{"role": "user", "content": text}], "logprobs": True, "return_meta_info": True, **fields}
    async with httpx.AsyncClient(trust_env=False) as client:
        return [(await client.post(url + CHAT, json=body)).raise_for_status().json() for url in urls]


def without_names(answer: Body) -> Body:
    (choice,) = answer["choices"]
    calls = [{**call, "id": ""} for call in choice["message"]["tool_calls"] or ()]
    choice = {**choice, "message": {**choice["message"], "tool_calls": calls}}
    return {**answer, "id": "", "choices": [{**choice, "meta_info": {**choice["meta_info"], "id": ""}}]}


async def test_all_say_the_same_under_ids_of_their_own(fleet: Fleet) -> None:
    tools = [{"type": "function", "function": {"name": "look"}}]
    async with fleet.served() as urls:
        answers = [await said(urls, "hello"), await said(urls, "hello"), await said(urls, "call", tools=tools)]
    for same in answers:
        assert without_names(same[0]) == without_names(same[1]) == without_names(same[2])
    ids = [answer["id"] for same in answers for answer in same]
    ids += [same["choices"][0]["message"]["tool_calls"][0]["id"] for same in answers[2]]
    assert len(set(ids)) == 12
    by_engine = zip(*answers, strict=True)
    assert [generation.id for generation in fleet.generations] == [a["id"] for one in by_engine for a in one]


async def test_a_prefix_is_cached_where_it_was_seen(fleet: Fleet) -> None:
    ids = list(range(100, 164))
    async with fleet.served() as urls:
        await said(urls[:1], "hello", input_ids=ids)
        again = await said(urls, "hello", input_ids=ids)
    cached = [answer["choices"][0]["meta_info"]["cached_tokens"] for answer in again]
    assert cached == [63, 0, 0]


async def test_all_listen_and_all_end_together(fleet: Fleet) -> None:
    async with fleet.served() as urls:
        assert len(set(urls)) == 3
    async with httpx.AsyncClient(trust_env=False) as client:
        for url in urls:
            with pytest.raises(httpx.ConnectError):
                await client.get(f"{url}/health")


async def test_a_port_that_is_taken_gives_the_others_back(fleet: Fleet) -> None:
    with socket.socket() as free, socket.socket() as taken:
        for one in (free, taken):
            one.bind(("127.0.0.1", 0))
        taken.listen()
        ports = [one.getsockname()[1] for one in (free, taken)]
        free.close()
        with pytest.raises(ListenError, match=str(ports[1])):
            async with fleet.served(ports=[ports[0], ports[1], 0]):
                raise AssertionError("unreachable")
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", ports[0]))


@pytest.mark.parametrize(
    ("given", "count", "ports"),
    [
        ((), 2, (0, 0)),
        ((0,), 2, (0, 0)),
        ((30_000,), 3, (30_000, 30_001, 30_002)),
        ((7, 5), 2, (7, 5)),
        ((9,), 1, (9,)),
    ],
)
def test_ports_follow_the_first_or_are_named_one_by_one(
    given: tuple[int, ...], count: int, ports: tuple[int, ...]
) -> None:
    assert ports_of(given, count) == ports


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda: ports_of((1, 2), 3), "2 ports for 3 engines"),
        (lambda: ports_of((5, 5), 2), "5, 5: each can be had once"),
        (lambda: ports_of((65_535,), 2), "past 65535"),
        (lambda: Fleet(EngineSettings(), 0, seed=0), "engines: 0 is not at least 1"),
    ],
)
def test_what_cannot_be_is_refused_by_name(refused: Callable[[], object], message: str) -> None:
    with pytest.raises(FleetError, match=message):
        refused()
