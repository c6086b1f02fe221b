"""Plans that cannot be are refused when a scenario is read."""

from typing import Any

import pytest
from pydantic import ValidationError

from miles_sim.scenarios.model import Scenario

TOOL = {"type": "function", "function": {"name": "t", "parameters": {}}}
CALL = {"tool_calls": [{"name": "t"}]}


def scenario(*faults: dict[str, Any], sessions: tuple[str, ...] = ("v1", "v2"), **plan: Any) -> Scenario:
    steps = plan.pop("steps", ({"do": "say"}, {"do": "say"}, {"do": "retry"}))
    return Scenario.model_validate(
        {
            "name": "faulty",
            "title": "faulty",
            "sessions": sessions,
            "rollouts": ({"index": 1}, {"index": 2}),
            "plan": {"steps": steps, **plan},
            "faults": faults,
        }
    )


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ({"kind": "http-5o3"}, "faults[0]: kind: 'http-5o3' is not one of the"),
        ({"kind": "http-503", "params": {"x": 1}}, "faults[0]: kind 'http-503': params: x"),
        ({"kind": "http-503", "where": {"rollout": 2}}, "faults[0]: where.rollout: 2 is not one of the 2"),
        ({"kind": "http-503", "where": {"step": "7"}}, "faults[0]: where.step: '7' fits no step that 'http-503' can"),
        ({"kind": "http-503", "where": {"step": "3"}}, "retry 3: a further attempt of the step that it asks again"),
        ({"kind": "http-503", "where": {"attempt": 2}}, "faults[0]: where.attempt: 2 is never made"),
        ({"kind": "http-503", "where": {"step": "1", "attempt": 1}}, "attempts are 0 to 0"),
        ({"kind": "http-503", "when": {"every": 3}}, "faults[0]: when: fits none of the 2 steps"),
        ({"kind": "session-open-404", "where": {"step": "collect"}}, "fits no step that 'session-open-404' can strike"),
        ({"kind": "http-503", "when": {"every": 2, "first": 1}}, "every and first exclude each other"),
    ],
)
def test_a_fault_that_can_never_strike_is_refused_by_place_and_reason(fault: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError) as caught:
        scenario(fault)
    assert told.replace("every and first", "first and every") in str(caught.value)


def test_a_retry_of_the_plan_is_a_further_attempt() -> None:
    assert scenario({"kind": "http-503", "where": {"step": "2", "attempt": 1}}).faults


def test_an_agent_that_asks_again_makes_more_attempts() -> None:
    fault = {"kind": "http-503", "where": {"step": "1", "attempt": 2}}
    with pytest.raises(ValidationError, match="never made"):
        scenario(fault, retries=1)
    assert scenario(fault, retries=2).faults


def test_two_faults_that_strike_one_place_are_refused() -> None:
    one, other = {"kind": "http-503", "where": {"rollout": 1}}, {"kind": "http-500", "where": {"step": "2"}}
    with pytest.raises(ValidationError, match=r"faults\[0\] and faults\[1\]: .* both strike rollout 1, step '2'"):
        scenario(one, other)


def test_two_faults_are_told_apart_by_rollout_step_attempt_and_edge() -> None:
    assert scenario(
        {"kind": "http-503", "where": {"rollout": 0, "step": "2"}, "when": {"first": 1}},
        {"kind": "http-500", "where": {"rollout": 0, "step": "2", "attempt": 1}},
        {"kind": "http-500", "where": {"rollout": 1, "step": "2"}},
        {"kind": "consumer-timeout", "where": {"rollout": 1, "step": "2"}},
    ).faults


def test_a_draw_may_meet_another_fault() -> None:
    assert scenario({"kind": "http-503"}, {"kind": "http-500", "when": {"probability": 0.1}}).faults


def test_a_direct_play_has_no_session_server() -> None:
    steps = ({"do": "say", "reply": CALL}, {"do": "tool"})
    with pytest.raises(
        ValidationError, match="strikes on the edge 'driver', and session 'direct' has only engine, model"
    ):
        scenario({"kind": "session-open-404"}, sessions=("direct",), steps=steps, tools=(TOOL,))


def test_many_explicit_faults_are_checked_in_no_time() -> None:
    faults = [{"kind": "http-503", "where": {"rollout": n % 2, "step": "1", "attempt": n // 2}} for n in range(22)]
    assert len(scenario(*faults, retries=10).faults) == 22
