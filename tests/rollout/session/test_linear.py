import asyncio
from typing import Any

import pytest
from starlette.responses import Response

from miles_sim.tokenizer import ByteTokenizer

TOOL = {"role": "tool", "content": "42", "tool_call_id": "c1"}


@pytest.fixture
async def v1(opened: Any) -> Any:
    return await opened(session="v1")


async def test_a_turn_asks_with_the_stored_ids_and_the_new_tail(v1: Any, user: Any) -> None:
    first = await v1.say(user("one"))
    second = await v1.say(user("one"), first, user("two"))
    third = [user("one"), first, user("two"), second, user("three")]
    await v1.say(*third)
    tokenizer, bodies = v1.engine.tokenizer, v1.engine.bodies
    assert bodies[0]["input_ids"] == tokenizer.render([user("one")])
    shown = await v1.show()
    for earlier, later in zip(shown["records"], shown["records"][1:], strict=False):
        said = [e[1] for e in earlier["response"]["choices"][0]["meta_info"]["output_token_logprobs"]]
        stored = [*earlier["request"]["input_ids"], *said]
        assert later["request"]["input_ids"][: len(stored)] == stored
    assert bodies[2]["messages"] == third
    assert await v1.texts() == ["r1", "r2", "r3"]
    assert "tree" not in shown["metadata"]


async def test_the_stored_spelling_of_history_stays(opened: Any, user: Any) -> None:
    v1 = await opened(session="v1", message_matcher="role_content_only")
    v1.engine.then(content="x", reasoning_content="because")
    await v1.say(user("one"))
    await v1.say(user("one"), {"role": "assistant", "content": "x", "own": 1}, user("two"))
    assert v1.engine.bodies[1]["messages"][1]["reasoning_content"] == "because"
    assert "own" not in v1.engine.bodies[1]["messages"][1]


async def test_asking_a_turn_again_takes_back_its_generation(v1: Any, user: Any) -> None:
    first = await v1.say(user("one"))
    await v1.say(user("one"), first, user("two"))
    again = await v1.say(user("one"), first, user("two, differently"))
    assert await v1.texts() == ["r1", "r3"]
    await v1.say(user("one"), first, user("two, differently"), again, user("three"))
    assert await v1.texts() == ["r1", "r3", "r4"]


async def test_the_first_turn_can_be_asked_again(v1: Any, user: Any) -> None:
    await v1.say(user("one"), temperature=0.1)
    await v1.say(user("one"), temperature=0.2)
    assert await v1.texts() == ["r2"]
    assert v1.engine.bodies[1]["input_ids"] == v1.engine.bodies[0]["input_ids"]


async def test_two_generations_are_never_taken_back_and_the_refusal_harms_nothing(v1: Any, user: Any) -> None:
    first = await v1.say(user("one"))
    second = await v1.say(user("one"), first, user("two"))
    before = await v1.show()
    refused = await v1.chat(user("a summary of all"))
    assert refused.status_code == 400
    assert "messages[0]" in refused.json()["error"]
    assert "take back 2 generations; 1 at most" in refused.json()["error"]
    assert await v1.show() == before
    await v1.say(user("one"), first, user("two"), second, user("three"))
    assert await v1.texts() == ["r1", "r2", "r3"]


async def test_a_reply_replayed_with_its_reasoning_stripped_is_refused_not_silently_taken_back(
    v1: Any, user: Any
) -> None:
    v1.engine.then(content="x", reasoning_content="because")
    first = await v1.say(user("one"))
    for content, fields in (("x", "reasoning_content"), ("y", "content and reasoning_content")):
        refused = await v1.chat(user("one"), {"role": "assistant", "content": content}, user("two"))
        assert refused.status_code == 400
        told = f"messages[1]: the reply of generation 0 with other {fields}; replay it as it was, or leave it out to "
        assert refused.json() == {"error": told + "ask again"}
    assert await v1.texts() == ["x"]
    await v1.say(user("one"), first, user("two"))


async def test_a_reply_replayed_behind_another_history_is_refused(v1: Any, user: Any) -> None:
    first = await v1.say(user("one"))
    refused = await v1.chat(user("one, edited"), first, user("two"))
    assert refused.status_code == 400
    told = "messages[1]: the reply of generation 0 behind a history that differs at 0; leave it out to ask again"
    assert refused.json() == {"error": told}
    assert await v1.texts() == ["r1"]


@pytest.mark.parametrize("failing", ["status", "reply", "transport"])
async def test_a_retry_that_fails_takes_nothing_back(v1: Any, user: Any, failing: str) -> None:
    first = await v1.say(user("one"))
    await v1.say(user("one"), first, user("two"))
    before = await v1.show()
    if failing == "status":
        v1.engine.answer(Response("no", status_code=503))
    elif failing == "reply":
        v1.engine.change(lambda reply: reply.update(choices=[]))
    else:
        v1.engine.script.append(lambda body: 1 / 0)
    failed = await v1.chat(user("one"), first, user("other"))
    assert failed.status_code == {"status": 503, "reply": 502, "transport": 500}[failing]
    assert await v1.show() == before


async def test_a_request_beside_one_under_way_is_refused_and_the_first_is_kept(v1: Any, user: Any) -> None:
    hold = v1.engine.hold()
    first = asyncio.create_task(v1.chat(user("one")))
    await hold.arrival()
    for _ in range(2):
        duplicate = await v1.chat(user("one"))
        assert duplicate.status_code == 409
        assert "a request of 1 messages is under way" in duplicate.json()["error"]
    hold.released.set()
    assert (await first).status_code == 200
    assert await v1.texts() == ["r1"]
    assert len(v1.engine.requests) == 1


@pytest.mark.parametrize("reason", ["length", "abort"])
async def test_a_cut_generation_can_be_asked_again_but_not_extended(v1: Any, user: Any, reason: str) -> None:
    v1.engine.change(lambda reply: reply["choices"][0].update(finish_reason=reason))
    first = await v1.say(user("one"))
    refused = await v1.chat(user("one"), first, user("two"))
    assert refused.status_code == 409
    assert f"finish_reason '{reason}'" in refused.json()["error"]
    await v1.say(user("one"))
    assert await v1.texts() == ["r2"]


async def test_a_request_that_adds_nothing_is_refused(v1: Any, user: Any) -> None:
    first = await v1.say(user("one"))
    refused = await v1.chat(user("one"), first)
    assert refused.status_code == 400
    assert "at least one message must follow" in refused.json()["error"]


async def test_a_linear_session_is_capped_too(opened: Any, user: Any) -> None:
    v1 = await opened(session="v1", max_nodes=1)
    first = await v1.say(user("one"))
    refused = await v1.chat(user("one"), first, user("two"))
    assert (refused.status_code, len(v1.engine.requests)) == (409, 1)
    assert "max_nodes: the session holds 1 generations, of 1 at most" in refused.json()["error"]
    await v1.say(user("one"))


async def test_a_stop_token_that_opens_the_next_message_gives_way(opened: Any, user: Any) -> None:
    v1 = await opened(session="v1", tokenizer=ByteTokenizer("delimiter"))
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    v1.engine.then(content="", tool_calls=calls)
    first = await v1.say(user("one"))
    await v1.say(user("one"), first, TOOL)
    stored, asked = (body["input_ids"] for body in v1.engine.bodies)
    said = v1.engine.tokenizer.encode("")
    assert asked[: len(stored) + len(said)] == [*stored, *said]
    assert asked[len(stored) + len(said)] == v1.engine.tokenizer.special_ids["<|observation|>"]
    assert (await v1.show())["metadata"]["max_trim_tokens"] == 1
