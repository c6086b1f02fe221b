from typing import Any

import pytest
from hypothesis import given

from miles_sim.agent.plan import Plan, Retry, Say, Tool, asked, walk
from miles_sim.document import DocumentError, read
from miles_sim.scenarios.strategies import plans

SAY: dict[str, Any] = {"do": "say"}
CALLS: dict[str, Any] = {"do": "say", "reply": {"tool_calls": [{"name": "run_tests"}]}}
FORK: dict[str, Any] = {"do": "subagent", "start": "fork", "steps": [SAY]}


@pytest.mark.parametrize(
    ("steps", "fault"),
    [
        ([{"do": "retry"}], "step '1': retry has no request of this conversation"),
        ([SAY, {**FORK, "steps": [{"do": "retry"}]}], "step '2.1': retry has no request of this conversation"),
        ([{"do": "tool"}], "step '1': tool answers a reply with tool_calls"),
        ([SAY, {"do": "tool"}], "step '2': tool answers a reply with tool_calls"),
        ([CALLS, {"do": "retry"}, {"do": "tool"}], "step '3': tool answers a reply with tool_calls"),
        ([{"do": "compact"}], "step '1': compact has no history"),
        ([SAY, {"do": "compact", "keep": "tail", "tail": 2}], "step '2': tail: 2 cuts nothing off the 2 messages"),
        ([FORK], "step '1': fork has no reply before it"),
        ([SAY, {**FORK, "at": "7"}], r"step '2': at: '7' is none of \['1'\]"),
        ([SAY, {"do": "compact"}, {**FORK, "at": "1"}], r"at: '1' is none of \['2'\]"),
        ([SAY, {"do": "subagent", "at": "1", "steps": [SAY]}], "at goes with start: fork"),
        ([SAY, {**SAY, "key": "1"}], "step key '1' stands twice"),
        ([{"do": "retry", "max_tokens": 3}], "extra inputs are not permitted"),
        ([{**SAY, "text": "see [2]"}, SAY], r"step '1': text holds \[2\]"),
        ([{**SAY, "tag": "a"}, {**SAY, "tag": "a"}], "step '2': tag 'a' with draw 0 is that of another step"),
        ([{**SAY, "tag": "a"}, {**SAY, "tag": "a", "draw": 1, "words": 3}], "shares tag 'a' with step '1'"),
        ([{**SAY, "tag": "a"}, {**SAY, "tag": "a", "draw": 1}, {"do": "retry"}], "shares tag 'a' with step '1'"),
        ([{"do": "shout"}], "does not match any of the expected tags"),
        ([{"do": "parallel", "branches": [{"steps": [SAY]}]}], "at least 2 items"),
    ],
)
def test_a_plan_that_refers_to_nothing_is_refused(steps: list[Any], fault: str) -> None:
    with pytest.raises(DocumentError, match=fault) as caught:
        read(Plan, {"steps": steps}, name="plan")
    assert str(caught.value).startswith("plan: ")


def test_places_in_errors_are_those_of_the_file() -> None:
    with pytest.raises(DocumentError, match=r"^plan: steps\[1\]\.reply\.tokens: .*\(found -1\)$"):
        read(Plan, {"steps": [SAY, {"do": "say", "reply": {"tokens": -1}}]}, name="plan")


def test_keys_are_places_unless_named() -> None:
    plan = Plan.model_validate(
        {
            "steps": [
                SAY,
                {**FORK, "key": "side", "steps": [SAY, {**SAY, "key": "x"}]},
                {"do": "parallel", "branches": [{"steps": [SAY]}, {"key": "b", "steps": [SAY]}]},
            ]
        }
    )
    assert [key for key, _ in walk(plan.steps)] == ["1", "side", "side.1", "x", "3", "3.1", "3.1.1", "b", "b.1"]


def test_retries_are_attempts_of_one_question() -> None:
    steps = [{"do": "say", "reply": {"tokens": n}} for n in (1, 4)]
    retries = [{"do": "retry", "reply": {"tokens": n}} for n in (2, 3)]
    plan = Plan.model_validate({"steps": [steps[0], retries[0], FORK, retries[1], steps[1]]})
    assert {q.key: [r.tokens for r in q.replies] for q in asked(plan.steps)} == {"1": [1, 2, 3], "3.1": [24], "5": [4]}


@given(plans())
def test_every_asking_step_is_asked_once(plan: Plan) -> None:
    steps = [step for _, step in walk(plan.steps)]
    questions = list(asked(plan.steps))
    retries = sum(isinstance(step, Retry) for step in steps)
    assert sum(len(q.replies) for q in questions) == len(questions) + retries
    assert all(isinstance(q.step, Say | Tool) or q.step.do == "compact" for q in questions)


@given(plans())
def test_a_dumped_plan_reads_back(plan: Plan) -> None:
    assert Plan.model_validate(plan.model_dump(mode="json")) == plan
