"""The agent's part of a direct play is the player's own: the same words, the same results."""

import pytest

from miles_sim.agent.direct import ToolBench, opening, results, turns
from miles_sim.agent.errors import AgentReplyError
from miles_sim.agent.plan import Plan
from miles_sim.ledger import Generation

CALL = {"name": "run_tests", "arguments": {}}
PLAN = Plan.model_validate(
    {
        "system": "Be brief.",
        "tools": [{"type": "function", "function": {"name": "run_tests"}}],
        "steps": [
            {"do": "say", "words": 3, "reply": {"tool_calls": [CALL, CALL]}},
            {"do": "tool", "words": 2, "reply": {"tool_calls": [CALL]}},
            {"do": "tool", "words": 0},
        ],
    }
)


def generation(id: str, prompt: int) -> Generation:
    return Generation(
        id=id,
        endpoint="generate",
        attempt=0,
        prompt_ids=(1,) * prompt,
        output_ids=(2,),
        logprobs=(-1.0,),
        finish_reason={"type": "stop"},
        cached_tokens=0,
        weight_version="default",
        spec=None,
    )


def test_the_opening_is_the_system_and_the_first_question() -> None:
    system, user = opening(PLAN, seed=0)
    assert system == {"role": "system", "content": "Be brief."}
    assert user["role"] == "user"
    assert user["content"].endswith(" [1]")
    assert opening(PLAN.model_copy(update={"system": None}), seed=0) == [user]


def test_there_is_a_result_for_each_call_in_order() -> None:
    found = list(results(PLAN, seed=0))
    assert [text.rpartition("[")[2] for text in found] == ["2]", "2]", "3]"]
    assert found[0] != found[1]


async def test_a_call_too_many_is_an_error_that_names_the_tool() -> None:
    bench = ToolBench(PLAN, seed=0)
    for expected in results(PLAN, seed=0):
        assert await bench.call(CALL) == {"content": expected}
    with pytest.raises(AgentReplyError, match="run_tests"):
        await bench.call(CALL)


def test_generations_become_turns_shortest_prompt_first() -> None:
    made = turns(PLAN, 4, [generation("b", 9), generation("a", 2), generation("c", 20), generation("d", 30)])
    assert [(t.rollout, t.step, t.parent, t.response_id) for t in made] == [
        (4, "1", None, "a"),
        (4, "2", "1", "b"),
        (4, "3", "2", "c"),
        (4, "beyond-3", "3", "d"),
    ]


def test_a_prompt_that_is_asked_again_is_one_turn_and_its_last_answer_counts() -> None:
    again = generation("again", 2).model_copy(update={"attempt": 1})
    made = turns(PLAN, 0, [again, generation("b", 9), generation("a", 2)])
    assert [(t.step, t.response_id, t.failed) for t in made] == [("1", "again", (200,)), ("2", "b", ())]
