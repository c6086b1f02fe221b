"""What a hook makes of a plan, and what an agent asks again by itself."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from miles_sim.agent.errors import AgentCrash, AgentRequestError
from miles_sim.agent.hook import PLANNED, RETURN, AgentGone, Deed, Doing
from miles_sim.agent.plan import Plan
from miles_sim.agent.player import play_plan

Script = Any
TWO = {"steps": [{"do": "say"}, {"do": "say"}], "returns": {"reward": 1.0}}
THREE = {"steps": [{"do": "say"}, {"do": "say"}, {"do": "say"}]}


class Once:
    """Does `deed` at one step, and notes what it was asked."""

    def __init__(self, step: str, deed: Deed | Callable[[Doing], Deed]) -> None:
        self.step, self.deed = step, deed
        self.asked: list[Doing] = []
        self.kept: list[tuple[str, Callable[[], Awaitable[None]]]] = []

    def does(self, doing: Doing) -> Deed:
        self.asked.append(doing)
        if doing.step != self.step:
            return PLANNED
        return self.deed(doing) if callable(self.deed) else self.deed

    def later(self, moment: str, ask: Callable[[], Awaitable[None]]) -> None:
        self.kept.append((moment, ask))


async def test_a_hook_sees_each_request_and_the_end(script: Script) -> None:
    hook = Once("none", PLANNED)
    plan = {"steps": [{"do": "say"}, {"do": "retry"}, {"do": "say"}], "returns": {"reward": 1.0}}
    assert await script.play(plan, request_kwargs={"seed": 4}, hook=hook) == {"reward": 1.0}
    assert [(doing.step, len(doing.messages), doing.own) for doing in hook.asked] == [
        ("1", 2, 1),
        ("2", 2, 0),
        ("3", 4, 1),
        (RETURN, 0, 0),
    ]
    assert hook.asked[0].options == {"seed": 4, "model": "sim"}
    assert hook.asked[-1].returned == {"reward": 1.0}


async def test_a_history_that_is_rewritten_stays_so_and_continues_what_it_still_begins_with(script: Script) -> None:
    def edits_second_reply(doing: Doing) -> Deed:
        messages = [dict(message) for message in doing.messages]
        messages[4]["content"] = "other"
        return Deed(messages=messages)

    plan = {"steps": [{"do": "say"}, {"do": "say"}, {"do": "say"}, {"do": "say"}]}
    await script.play(plan, hook=Once("3", edits_second_reply))
    assert [message["content"] for message in script.asked_with("3")["messages"]][4] == "other"
    assert [message["content"] for message in script.asked_with("4")["messages"]][4] == "other"
    assert script.turns() == [("1", "say", None), ("2", "say", "1"), ("3", "say", "1"), ("4", "say", "3")]


async def test_a_history_that_is_put_back_as_it_was_continues_what_it_continued_before(script: Script) -> None:
    def swaps_first_two(doing: Doing) -> Deed:
        return Deed(messages=[doing.messages[0], doing.messages[2], doing.messages[1], *doing.messages[3:]])

    class Twice(Once):
        def does(self, doing: Doing) -> Deed:
            return swaps_first_two(doing) if doing.step in ("2", "3") else PLANNED

    await script.play(THREE, hook=Twice("none", PLANNED))
    assert script.turns() == [("1", "say", None), ("2", "say", None), ("3", "say", "1")]


async def test_a_field_that_is_left_out_stays_out_and_opens_a_root(script: Script) -> None:
    plan = {**THREE, "tools": [{"type": "function", "function": {"name": "run"}}]}
    await script.play(plan, hook=Once("2", Deed(omitted=frozenset({"tools"}))))
    assert ["tools" in body for body in script.asked] == [True, False, False]
    assert script.turns() == [("1", "say", None), ("2", "say", None), ("3", "say", "2")]


async def test_a_field_that_no_prompt_holds_opens_none(script: Script) -> None:
    await script.play(THREE, hook=Once("2", Deed(omitted=frozenset({"model"}))))
    assert ["model" in body for body in script.asked] == [True, False, False]
    assert script.turns() == [("1", "say", None), ("2", "say", "1"), ("3", "say", "2")]


async def test_what_is_raised_before_a_request_keeps_it_from_being_made(script: Script) -> None:
    with pytest.raises(AgentCrash):
        await script.play(TWO, hook=Once("2", Deed(before=lambda: AgentCrash("gone"))))
    assert script.turns() == [("1", "say", None)]


async def test_what_is_raised_after_a_request_leaves_it_answered(script: Script) -> None:
    with pytest.raises(asyncio.CancelledError):
        await script.play(TWO, hook=Once("2", Deed(after=asyncio.CancelledError)))
    assert [turn.status for turn in script.journal] == [200, 200]


async def test_an_agent_that_is_gone_returns_what_the_plan_says(script: Script) -> None:
    plan = {
        "steps": [{"do": "say"}, {"do": "subagent", "steps": [{"do": "say"}]}, {"do": "say"}],
        "returns": {"reward": 1.0},
    }
    assert await script.play(plan, hook=Once("2.1", Deed(before=AgentGone))) == {"reward": 1.0}
    assert script.turns() == [("1", "say", None)]


async def test_the_end_may_raise_or_return_something_else(script: Script) -> None:
    assert await script.play(TWO, hook=Once(RETURN, Deed(returns=lambda value: [value]))) == [{"reward": 1.0}]
    with pytest.raises(AgentCrash):
        await script.play(TWO, hook=Once(RETURN, Deed(before=lambda: AgentCrash("gone"))))


async def test_requests_beside_the_planned_one_are_journaled_behind_it(script: Script) -> None:
    def drawn(number: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
        return lambda body: {**body, "seed": number}

    await script.play(THREE, hook=Once("2", Deed(beside=[drawn(1), drawn(2)])))
    assert script.turns() == [
        ("1", "say", None),
        ("2", "say", "1"),
        ("2~1", "extra", "1"),
        ("2~2", "extra", "1"),
        ("3", "say", "2"),
    ]
    assert [body.get("seed") for body in script.asked] == [None, None, 1, 2, None]


@pytest.mark.parametrize("names", [("b", "a"), ("a", "b")])
async def test_of_two_equal_requests_the_smaller_id_is_the_steps_whichever_came_first(
    script: Script, names: tuple[str, str]
) -> None:
    left = list(names)

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        name = left.pop(0)
        return 200, {"id": name, "choices": [{"message": {"content": name}, "finish_reason": "stop"}]}

    script.answers["1"] = answer
    await script.play(TWO, hook=Once("1", Deed(beside=[lambda body: body])))
    assert [(turn.step, turn.response_id) for turn in script.journal[:2]] == [("1", "a"), ("1~1", "b")]
    assert script.asked_with("2")["messages"][2]["content"] == "a"


async def test_of_two_equal_requests_the_one_that_was_answered_is_the_steps(script: Script) -> None:
    answers = [(409, "busy"), (200, {"id": "z", "choices": [{"message": {}, "finish_reason": "stop"}]})]
    script.answers["1"] = lambda body: answers.pop(0)
    await script.play(TWO, hook=Once("1", Deed(beside=[lambda body: body])))
    assert [(turn.step, turn.status) for turn in script.journal] == [("1", 200), ("1~1", 409), ("2", 200)]


async def test_requests_before_the_planned_one_stand_before_it_and_nobody_goes_on_from_them(script: Script) -> None:
    def reworded(body: dict[str, Any]) -> dict[str, Any]:
        *history, last = body["messages"]
        return {**body, "messages": [*history, {**last, "content": f"first {last['content']}"}]}

    await script.play(TWO, hook=Once("2", Deed(earlier=[reworded])))
    assert script.turns() == [("1", "say", None), ("2~1", "earlier", "1"), ("2", "say", "1")]


async def test_a_late_request_is_kept_for_whoever_knows_the_moment_and_is_in_no_journal(script: Script) -> None:
    hook = Once("2", Deed(later="collect"))
    async with httpx.AsyncClient(transport=script) as client:
        options: dict[str, Any] = {"base_url": "http://s/1", "request_kwargs": {}, "rollout": 0, "seed": 0}
        plan = Plan.model_validate(TWO)
        await play_plan(plan, client=client, journal=script.journal, hook=hook, **options)
        ((moment, ask),) = hook.kept
        assert (moment, len(script.asked)) == ("collect", 2)
        await ask()
    assert script.raw[2] == script.raw[1]
    assert len(script.journal) == 2


@pytest.mark.parametrize("status", [0, 408, 409, 429, 500, 502, 503])
async def test_what_openais_client_asks_again_is_asked_again_word_for_word(script: Script, status: int) -> None:
    answers: list[Any] = [(status, httpx.ReadError("reset") if status == 0 else "no")] * 2
    good = (200, {"id": "x", "choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]})
    script.answers["1"] = lambda body: answers.pop() if answers else good
    await script.play({**TWO, "retries": 2})
    assert (script.journal[0].status, script.journal[0].failed) == (200, (status, status))
    assert script.raw[0] == script.raw[1] == script.raw[2]


async def test_attempts_come_to_an_end(script: Script) -> None:
    script.answers["1"] = (503, "no")
    with pytest.raises(AgentRequestError, match="HTTP 503"):
        await script.play({**TWO, "retries": 3})
    assert (script.journal[0].status, script.journal[0].failed) == (503, (503, 503, 503))


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
async def test_what_is_refused_for_good_is_not_asked_again(script: Script, status: int) -> None:
    script.answers["1"] = (status, "no")
    with pytest.raises(AgentRequestError):
        await script.play({**TWO, "retries": 3})
    assert len(script.asked) == 1
