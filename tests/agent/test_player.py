import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from miles_sim.agent.errors import AgentCrash, AgentReplyError, AgentRequestError
from miles_sim.agent.plan import Plan
from miles_sim.agent.player import play_plan
from miles_sim.ledger import Turn

Script = Any
Calls = Callable[..., Any]
CALLS = {"tool_calls": [{"name": "run_tests"}]}
TWO_CALLS = {"tool_calls": [{"name": "run_tests"}, {"name": "read_file"}]}


async def test_a_say_extends_history_with_the_reply_as_it_came(script: Script) -> None:
    message = {"role": "assistant", "content": "a", "reasoning_content": "hm", "tool_calls": None, "hidden_states": 1}
    script.answers["1"] = (200, {"id": "x", "choices": [{"message": message, "finish_reason": "stop"}]})

    returned = await script.play({"steps": [{"do": "say"}, {"do": "say"}], "returns": {"reward": 1.0}})

    assert returned == {"reward": 1.0}
    assert script.urls == ["http://sessions/s1/v1/chat/completions"] * 2
    first, second = script.asked
    assert [m["role"] for m in first["messages"]] == ["system", "user"]
    assert second["messages"][:2] == first["messages"]
    assert second["messages"][2] == {"role": "assistant", "content": "a", "reasoning_content": "hm"}
    assert script.turns() == [("1", "say", None), ("2", "say", "1")]
    assert script.journal[0].response_id == "x"
    assert script.journal[0].finish_reason == "stop"


async def test_request_options_and_tools_go_into_every_request(script: Script) -> None:
    tool = {"type": "function", "function": {"name": "run_tests"}}
    plan = {"system": None, "tools": [tool], "steps": [{"do": "say", "max_tokens": 5}, {"do": "say"}]}

    await script.play(plan, request_kwargs={"max_tokens": 64, "seed": 3, "temperature": 0.5}, model="m")

    assert [body["max_tokens"] for body in script.asked] == [5, 64]
    for body in script.asked:
        assert (body["model"], body["seed"], body["temperature"], body["tools"]) == ("m", 3, 0.5, [tool])
    assert script.shape("1") == "u"


async def test_tool_results_answer_each_call_by_id(script: Script, reply_with_calls: Calls) -> None:
    script.answers["1"] = reply_with_calls("x", "run_tests", "read_file")

    await script.play({"steps": [{"do": "say", "reply": TWO_CALLS}, {"do": "tool"}]})

    messages = script.asked_with("2")["messages"]
    assert script.shape("2") == "suatt"
    assert messages[2]["content"] is None
    assert messages[2]["tool_calls"] == script.answers["1"][1]["choices"][0]["message"]["tool_calls"]
    assert "reasoning_content" not in messages[2]
    assert [m["tool_call_id"] for m in messages[3:]] == ["call_0", "call_1"]
    assert messages[3]["content"] != messages[4]["content"]
    assert all(m["content"].endswith("[2]") for m in messages[3:])


async def test_tool_results_without_a_call_in_the_reply_are_an_error(script: Script) -> None:
    with pytest.raises(AgentReplyError, match=r"step '2': the latest reply holds no tool call"):
        await script.play({"steps": [{"do": "say", "reply": CALLS}, {"do": "tool"}]})
    assert script.turns() == [("1", "say", None)]


async def test_a_summary_opens_a_new_root(script: Script) -> None:
    await script.play({"steps": [{"do": "say"}, {"do": "say"}, {"do": "compact"}, {"do": "say"}]})

    assert script.shape("3") == "su"
    assert script.asked_with("3")["messages"][1]["content"].startswith("Summary of the work so far: ")
    assert script.shape("4") == "suau"
    assert script.turns()[2:] == [("3", "compact", None), ("4", "say", "3")]


async def test_a_tail_keeps_the_last_messages(script: Script) -> None:
    await script.play({"steps": [{"do": "say"}, {"do": "say"}, {"do": "compact", "keep": "tail", "tail": 2}]})

    before, after = script.asked_with("2")["messages"], script.asked_with("3")["messages"]
    assert script.shape("3") == "suau"
    assert after[1] == before[-1]
    assert after[2]["content"] == "reply 2#0"
    assert script.turns()[2] == ("3", "compact", None)


async def test_a_tail_never_opens_with_a_tool_message(script: Script, reply_with_calls: Calls) -> None:
    script.answers["1"] = reply_with_calls("x", "run_tests", "read_file")
    steps = [{"do": "say", "reply": TWO_CALLS}, {"do": "tool"}, {"do": "compact", "keep": "tail", "tail": 3}]

    await script.play({"steps": steps})

    assert script.shape("3") == "sau"


async def test_a_retry_sends_the_same_bytes_and_its_reply_takes_the_place(script: Script) -> None:
    await script.play({"steps": [{"do": "say"}, {"do": "say"}, {"do": "retry"}, {"do": "retry"}, {"do": "say"}]})

    assert script.raw[1] == script.raw[2] == script.raw[3]
    assert script.shape("5") == "suauau"
    assert script.asked_with("5")["messages"][4]["content"] == "reply 2#2"
    assert script.turns()[2:] == [("3", "retry", "1"), ("4", "retry", "1"), ("5", "say", "4")]
    assert [turn.retry_of for turn in script.journal] == [None, None, "2", "3", None]


async def test_a_fresh_subagent_reports_with_the_next_user_message(script: Script) -> None:
    script.answers["2.2"] = (200, {"id": "x", "choices": [{"message": {"content": "it is [1]"}, "finish_reason": "s"}]})
    inner = {"do": "subagent", "returns": True, "steps": [{"do": "say"}, {"do": "say"}]}

    await script.play({"steps": [{"do": "say"}, inner, {"do": "say"}, {"do": "say"}]})

    assert script.shape("2.1") == "su"
    assert script.shape("2.2") == "suau"
    told = script.asked_with("3")["messages"][-1]["content"]
    assert told.startswith("A subagent reports: it is (1)\n")
    assert script.shape("3") == "suau"
    assert "reports" not in script.asked_with("4")["messages"][-1]["content"]
    assert script.turns() == [
        ("1", "say", None),
        ("2.1", "subagent", None),
        ("2.2", "say", "2.1"),
        ("3", "say", "1"),
        ("4", "say", "3"),
    ]


async def test_a_fork_stands_on_the_history_up_to_its_step(script: Script) -> None:
    fork = {"do": "subagent", "start": "fork", "steps": [{"do": "say"}]}
    await script.play({"steps": [{"do": "say"}, {"do": "say"}, {**fork, "at": "1"}, fork, {"do": "say"}]})

    assert script.asked_with("3.1")["messages"][:3] == script.asked_with("2")["messages"][:3]
    assert script.shape("3.1") == "suau"
    assert script.shape("4.1") == "suauau"
    assert script.shape("5") == "suauau"
    assert script.turns()[2:] == [("3.1", "subagent", "1"), ("4.1", "subagent", "2"), ("5", "say", "2")]


async def test_subagents_nest(script: Script) -> None:
    inner = {"do": "subagent", "start": "fork", "returns": True, "steps": [{"do": "say"}]}
    outer = {"do": "subagent", "returns": True, "steps": [{"do": "say"}, inner, {"do": "say"}]}

    await script.play({"steps": [{"do": "say"}, outer, {"do": "say"}]})

    assert script.turns() == [
        ("1", "say", None),
        ("2.1", "subagent", None),
        ("2.2.1", "subagent", "2.1"),
        ("2.3", "say", "2.1"),
        ("3", "say", "1"),
    ]
    assert script.asked_with("2.3")["messages"][-1]["content"].startswith("A subagent reports: reply 2.2.1#0\n")
    assert script.asked_with("3")["messages"][-1]["content"].startswith("A subagent reports: reply 2.3#0\n")


PARALLEL = {
    "do": "parallel",
    "branches": [{"start": "fork", "returns": True, "steps": [{"do": "say"}, {"do": "say"}]} for _ in range(3)],
}


class Gate(httpx.AsyncBaseTransport):
    """Holds requests back until `count` are waiting, then lets them through last come first served."""

    def __init__(self, inner: httpx.AsyncBaseTransport, first: str, count: int) -> None:
        self.inner, self.first, self.count = inner, first, count
        self.waiting: list[asyncio.Event] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if json.loads(request.content)["messages"][-1]["content"].endswith(self.first):
            mine = asyncio.Event()
            self.waiting.append(mine)
            if len(self.waiting) == self.count:
                self.waiting[-1].set()
            await asyncio.wait_for(mine.wait(), 5)
            response = await self.inner.handle_async_request(request)
            self.waiting.remove(mine)
            if self.waiting:
                self.waiting[-1].set()
            return response
        return await self.inner.handle_async_request(request)


async def test_parallel_branches_run_at_once_and_are_journaled_in_plan_order(script: Script) -> None:
    plan = Plan.model_validate({"steps": [{"do": "say"}, PARALLEL, {"do": "say"}]})
    gate = Gate(script, ".1]", 3)
    async with httpx.AsyncClient(transport=gate) as client:
        await play_plan(
            plan, client=client, base_url="http://s", request_kwargs={}, rollout=4, seed=0, journal=script.journal
        )

    assert [m["messages"][-1]["content"][-7:] for m in script.asked[1:4]] != sorted(
        m["messages"][-1]["content"][-7:] for m in script.asked[1:4]
    )
    steps = [turn.step for turn in script.journal]
    assert steps == ["1", "2.1.1", "2.1.2", "2.2.1", "2.2.2", "2.3.1", "2.3.2", "3"]
    assert {turn.rollout for turn in script.journal} == {4}
    told = script.asked_with("3")["messages"][-1]["content"].splitlines()
    assert told[:3] == [f"A subagent reports: reply 2.{n}.2#0" for n in (1, 2, 3)]


async def test_a_failing_branch_lets_the_others_finish(script: Script) -> None:
    branches = [
        {"steps": [{"do": "crash", "message": "first"}]},
        {"steps": [{"do": "say"}, {"do": "say"}, {"do": "crash", "message": "second"}]},
    ]
    with pytest.raises(AgentCrash, match="first"):
        await script.play({"steps": [{"do": "parallel", "branches": branches}]})
    assert [turn.step for turn in script.journal] == ["1.2.1", "1.2.2"]


async def test_twins_say_the_same_words_and_draw_apart(script: Script) -> None:
    branches = [{"steps": [{"do": "say", "tag": "twin", "draw": n}]} for n in (0, 1)]
    await script.play({"steps": [{"do": "parallel", "branches": branches}]}, request_kwargs={"seed": 10})

    one, other = script.asked
    assert one["messages"] == other["messages"]
    assert (one["seed"], other["seed"]) == (10, 11)


async def test_a_crash_keeps_the_journal(script: Script) -> None:
    with pytest.raises(AgentCrash, match="step '3': the sandbox went away"):
        await script.play(
            {"steps": [{"do": "say"}, {"do": "say"}, {"do": "crash", "message": "the sandbox went away"}]}
        )
    assert [(turn.step, turn.status) for turn in script.journal] == [("1", 200), ("2", 200)]


async def test_a_refused_request_is_journaled_and_raised(script: Script) -> None:
    script.answers["2"] = (409, {"error": "truncated"})
    with pytest.raises(AgentRequestError, match=r"step '2': HTTP 409: .*truncated") as caught:
        await script.play({"steps": [{"do": "say"}, {"do": "say"}, {"do": "say"}]})
    assert (caught.value.step, caught.value.status) == ("2", 409)
    assert json.loads(caught.value.body) == {"error": "truncated"}
    last = script.journal[-1]
    assert (last.step, last.status, last.response_id, last.finish_reason) == ("2", 409, None, None)


async def test_a_lost_request_has_status_zero(script: Script) -> None:
    script.answers["1"] = (0, httpx.ReadError("connection reset"))
    with pytest.raises(AgentRequestError, match="step '1': no answer: ReadError: connection reset"):
        await script.play({"steps": [{"do": "say"}]})
    assert [(turn.step, turn.status) for turn in script.journal] == [("1", 0)]


@pytest.mark.parametrize("document", ["no json", {"id": "x", "choices": []}, {"id": 3, "choices": [{}]}, ["x"]])
async def test_a_reply_that_is_no_chat_completion_is_an_error(script: Script, document: Any) -> None:
    script.answers["1"] = (200, document)
    with pytest.raises(AgentReplyError, match="step '1': the reply is no chat completion"):
        await script.play({"steps": [{"do": "say"}]})
    assert [(turn.status, turn.response_id) for turn in script.journal] == [(200, None)]


async def test_a_cancelled_run_keeps_the_journal() -> None:
    journal: list[Turn] = []
    arrived = asyncio.Event()

    class Silent(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            arrived.set()
            await asyncio.Event().wait()
            raise AssertionError

    async with httpx.AsyncClient(transport=Silent()) as client:
        run = asyncio.ensure_future(
            play_plan(
                Plan.model_validate({"steps": [{"do": "say"}]}),
                client=client,
                base_url="http://s",
                request_kwargs={},
                rollout=0,
                seed=0,
                journal=journal,
            )
        )
        await arrived.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert [(turn.step, turn.status) for turn in journal] == [("1", 0)]


async def test_words_depend_on_seed_and_step_alone(script: Script) -> None:
    plan = {"steps": [{"do": "say"}, {"do": "say", "words": 3}]}
    for rollout, seed in ((0, 5), (1, 5), (0, 6)):
        await script.play(plan, rollout=rollout, seed=seed)

    texts = [body["messages"][-1]["content"] for body in script.asked]
    assert texts[:2] == texts[2:4]
    assert texts[:2] != texts[4:]
    assert len(texts[1].split()) == 4


async def test_other_tools_are_sent_from_their_step_on_and_open_a_root_that_forks_share(script: Script) -> None:
    one, other = ({"type": "function", "function": {"name": name}} for name in ("one", "other"))
    steps = [
        {"do": "say"},
        {"do": "say", "tools": [other]},
        {"do": "subagent", "start": "fork", "steps": [{"do": "say"}]},
        {"do": "subagent", "start": "fresh", "steps": [{"do": "say"}]},
        {"do": "say"},
    ]
    await script.play({"tools": [one], "steps": steps})
    assert [body["tools"] for body in script.asked] == [[one], [other], [other], [one], [other]]
    assert [(step, parent) for step, _, parent in script.turns()] == [
        ("1", None),
        ("2", None),
        ("3.1", "2"),
        ("4.1", None),
        ("5", "2"),
    ]


def test_what_was_said_under_other_tools_cannot_be_forked() -> None:
    steps = [
        {"do": "say"},
        {"do": "say", "tools": []},
        {"do": "subagent", "start": "fork", "at": "1", "steps": [{"do": "say"}]},
    ]
    with pytest.raises(ValidationError, match="at: '1' is none of"):
        Plan.model_validate({"steps": steps})
