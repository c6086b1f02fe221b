import asyncio
from typing import Any

import pytest
from starlette.responses import Response

from miles_sim.rollout.record import Record


@pytest.fixture
async def v2(opened: Any) -> Any:
    return await opened(session="v2")


def records(sessions: Any) -> list[Record]:
    return [c.record for c in sessions.server._sessions.get(sessions.session).conversation.commits()]


async def shape(sessions: Any) -> list[tuple[int, int | None]]:
    return [(node["id"], node["parent"]) for node in (await sessions.show())["metadata"]["tree"]["nodes"]]


async def test_a_request_grows_a_branch_behind_the_deepest_history_it_begins_with(v2: Any, user: Any) -> None:
    first = await v2.say(user("one"))
    second = await v2.say(user("one"), first, user("two"))
    await v2.say(user("one"), first, user("two"), second, user("three"))
    await v2.say(user("one"), first, user("subagent"))
    await v2.say(user("summary"))
    await v2.say(user("one"))
    assert await shape(v2) == [(0, None), (1, 0), (2, 1), (3, 0), (4, None), (5, None)]
    tree = (await v2.show())["metadata"]["tree"]
    assert tree["leaves"] == [
        {"node_id": 2, "path_node_ids": [0, 1, 2]},
        {"node_id": 3, "path_node_ids": [0, 3]},
        {"node_id": 4, "path_node_ids": [4]},
        {"node_id": 5, "path_node_ids": [5]},
    ]
    for made in records(v2):
        parent = None if made.parent is None else records(v2)[made.parent]
        stored = [] if parent is None else [*parent.prompt_ids, *parent.output_ids]
        assert list(made.prompt_ids)[: len(stored)] == stored


async def test_of_equal_histories_the_latest_is_continued(v2: Any, user: Any) -> None:
    v2.engine.then(content="same")
    v2.engine.then(content="same")
    reply = await v2.say(user("one"))
    await v2.say(user("one"))
    await v2.say(user("one"), reply, user("two"))
    assert await shape(v2) == [(0, None), (1, None), (2, 1)]


async def test_history_told_otherwise_opens_a_root_and_loses_nothing(v2: Any, user: Any) -> None:
    v2.engine.then(content="x", reasoning_content="because")
    await v2.say(user("one"))
    await v2.say(user("one"), {"role": "assistant", "content": "x"}, user("two"))
    assert await shape(v2) == [(0, None), (1, None)]


async def test_siblings_under_way_together_are_twins_and_later_ones_are_not(v2: Any, user: Any) -> None:
    first = await v2.say(user("one"))
    holds = [v2.engine.hold() for _ in range(3)]
    asked = []
    for hold, text in zip(holds, ("a", "b", "c"), strict=True):
        asked.append(asyncio.create_task(v2.chat(user("one"), first, user(text))))
        await hold.arrival()
    for i in (2, 0, 1):
        holds[i].released.set()
        assert (await asked[i]).status_code == 200
    await v2.say(user("one"), first, user("d"))
    await v2.say(user("a root"))
    twins = {made.request_messages[-1]["content"]: made.concurrent_with for made in records(v2)}
    assert twins == {
        "one": frozenset(),
        "c": frozenset({2, 3}),
        "a": frozenset({1, 3}),
        "b": frozenset({1, 2}),
        "d": frozenset(),
        "a root": frozenset(),
    }


async def test_under_way_together_behind_different_generations_are_no_twins(v2: Any, user: Any) -> None:
    first = await v2.say(user("one"))
    second = await v2.say(user("one"), first, user("two"))
    hold = v2.engine.hold()
    slow = asyncio.create_task(v2.chat(user("one"), first, user("three")))
    await hold.arrival()
    await v2.say(user("one"), first, user("two"), second, user("four"))
    hold.released.set()
    assert (await slow).status_code == 200
    assert [made.concurrent_with for made in records(v2)] == [frozenset()] * 4


async def test_one_that_started_before_the_other_ended_is_its_twin_on_both_sides(v2: Any, user: Any) -> None:
    early, late = v2.engine.hold(), v2.engine.hold()
    first = asyncio.create_task(v2.chat(user("one")))
    await early.arrival()
    second = asyncio.create_task(v2.chat(user("one")))
    await late.arrival()
    early.released.set()
    await first
    third = await v2.chat(user("one"))
    late.released.set()
    await second
    assert third.status_code == 200
    assert [made.concurrent_with for made in records(v2)] == [{2}, {2}, {0, 1}]


@pytest.mark.parametrize("reason", ["length", "abort"])
async def test_a_cut_node_cannot_be_extended_but_branched_before(v2: Any, user: Any, reason: str) -> None:
    v2.engine.change(lambda reply: reply["choices"][0].update(finish_reason=reason))
    first = await v2.say(user("one"))
    refused = await v2.chat(user("one"), first, user("two"))
    assert refused.status_code == 409
    assert f"generation 0, which ended with finish_reason '{reason}'" in refused.json()["error"]
    await v2.say(user("one"))
    assert await shape(v2) == [(0, None), (1, None)]
    assert (await v2.show())["metadata"]["tree"]["nodes"][0]["truncated"] is (reason == "length")


async def test_the_cap_is_checked_before_the_engine_works_and_counts_what_is_under_way(opened: Any, user: Any) -> None:
    v2 = await opened(session="v2", max_nodes=2)
    await v2.say(user("one"))
    hold = v2.engine.hold()
    second = asyncio.create_task(v2.chat(user("two")))
    await hold.arrival()
    refused = await v2.chat(user("three"))
    assert refused.status_code == 409
    assert "max_nodes: the session holds 1 generations and 1 requests under way, of 2 at most" in refused.text
    assert len(v2.engine.requests) == 2
    hold.released.set()
    assert (await second).status_code == 200


async def test_a_request_that_failed_makes_room_again(opened: Any, user: Any) -> None:
    v2 = await opened(session="v2", max_nodes=1)
    v2.engine.answer(Response("full", status_code=400))
    assert (await v2.chat(user("one"))).status_code == 400
    assert await v2.say(user("one"))


async def test_an_own_matcher_decides_where_requests_attach(opened: Any, user: Any) -> None:
    def same(stored: dict[str, Any], replayed: dict[str, Any]) -> bool:
        return str(stored["content"]).lower() == str(replayed["content"]).lower()

    v2 = await opened(session="v2", message_matcher=same)
    await v2.say(user("one"))
    await v2.say(user("ONE"), {"role": "assistant", "content": "R1"}, user("two"))
    assert await shape(v2) == [(0, None), (1, 0)]
    assert [m["content"] for m in records(v2)[1].request_messages] == ["one", "r1", "two"]


@pytest.mark.parametrize("session", ["v1", "v2"])
async def test_an_own_matcher_that_fails_is_named_and_harms_nothing(opened: Any, user: Any, session: str) -> None:
    def broken(stored: dict[str, Any], replayed: dict[str, Any]) -> bool:
        raise KeyError("role")

    sessions = await opened(session=session, message_matcher=broken)
    first = await sessions.say(user("one"))
    failed = await sessions.chat(user("one"), first, user("two"))
    assert failed.status_code == 500
    assert "broken raised KeyError" in failed.json()["error"]
    assert await sessions.texts() == ["r1"]
