"""An agent that fails, leaves, asks too much or returns what it should not."""

import asyncio
import math
from random import Random
from typing import Any

import pytest

from miles_sim.agent.errors import AgentCrash
from miles_sim.agent.hook import RETURN, AgentGone, Deed, Doing
from miles_sim.faults.catalogue import kind_named, kinds
from miles_sim.faults.strike import CannotStrike
from miles_sim.rollout.plain import not_json
from miles_sim.rollout.sample import RESERVED

ASKING = Doing("2", ({"role": "user", "content": "Go on [2]"},), 1, {"seed": 5})
RETURNS = sorted(name for name in kinds() if name.startswith("agent-returns-"))


def strike(name: str, doing: Doing = ASKING, **params: Any) -> Deed:
    kind = kind_named(name)
    deed: Deed = kind.effect(kind.params.model_validate(params), doing, Random(0))
    return deed


@pytest.mark.parametrize(
    ("name", "moment", "error"),
    [
        ("agent-crash-before", "before", AgentCrash),
        ("agent-crash-after", "after", AgentCrash),
        ("agent-crash-at-end", "before", AgentCrash),
        ("agent-cancels", "after", asyncio.CancelledError),
        ("agent-abandons", "before", AgentGone),
    ],
)
def test_an_agent_fails_or_leaves_at_its_moment(name: str, moment: str, error: type[BaseException]) -> None:
    raised = getattr(strike(name), moment)
    assert raised is not None
    assert isinstance(raised(), error)


def test_a_crash_says_what_it_is_told_to() -> None:
    raised = strike("agent-crash-before", message="out of disk").before
    assert raised is not None
    assert str(raised()) == "out of disk"


def test_a_flood_asks_for_other_draws_of_the_same_question() -> None:
    body = {"messages": [{"content": "Go on [2]"}], "seed": 5}
    bodies = [change(body) for change in strike("agent-floods", requests=3).beside]
    assert [each["seed"] for each in bodies] == [6, 7, 8]
    assert all(each["messages"] == body["messages"] for each in bodies)


def test_twice_is_the_very_same_request() -> None:
    (change,) = strike("agent-asks-twice").beside
    assert change({"seed": 5}) == {"seed": 5}


def test_past_the_cap_other_things_are_asked_with_the_steps_tag_at_their_end() -> None:
    body = {"messages": [{"role": "user", "content": "Go on [2]"}]}
    said = [change(body)["messages"][-1]["content"] for change in strike("agent-past-node-cap", requests=2).earlier]
    assert said == ["(1) Go on [2]", "(2) Go on [2]"]
    assert body["messages"][0]["content"] == "Go on [2]"


@pytest.mark.parametrize("moment", ["collect", "delete"])
def test_a_part_of_the_agent_lives_on(moment: str) -> None:
    assert strike(f"agent-asks-after-{moment}").later == moment


@pytest.mark.parametrize(
    "name", ["agent-floods", "agent-asks-twice", "agent-past-node-cap", "agent-asks-after-collect"]
)
@pytest.mark.parametrize("doing", [Doing(RETURN), Doing("2", ASKING.messages, 0, {})], ids=["end", "asks again"])
def test_what_makes_no_request_of_its_own_makes_no_further_ones(name: str, doing: Doing) -> None:
    with pytest.raises(CannotStrike):
        strike(name, doing)


@pytest.mark.parametrize("name", RETURNS)
@pytest.mark.parametrize("returned", [None, {"reward": 1.0}])
def test_what_is_returned_is_refused_by_json_or_by_its_type_unless_it_is_to_be_tolerated(
    name: str, returned: Any
) -> None:
    kind = kind_named(name)
    change = strike(name, Doing(RETURN, returned=returned)).returns
    assert kind.at == RETURN
    assert change is not None
    value = change(returned)
    refused = not isinstance(value, dict) or not_json(value, "metadata") is not None
    assert refused == (kind.verdict == "reject")


def test_names_that_are_taken_are_returned_beside_what_is_the_agents() -> None:
    change = strike("agent-returns-reserved", Doing(RETURN)).returns
    assert change is not None
    value = change({"reward": 1.0})
    assert value["reward"] == 1.0
    assert set(value) - {"reward"} <= set(RESERVED)


def test_a_reward_may_be_no_number() -> None:
    change = strike("agent-returns-nan", Doing(RETURN)).returns
    assert change is not None
    assert math.isnan(change(None)["reward"])


def test_logprobs_are_left_out_and_nothing_that_an_agent_reads() -> None:
    left_out = strike("agent-drops-logprobs").omitted
    assert {"logprobs", "return_prompt_token_ids"} <= left_out
    assert not left_out & {"messages", "tools", "seed"}
    with pytest.raises(CannotStrike):
        strike("agent-drops-logprobs", Doing(RETURN, (), 0, {}))
