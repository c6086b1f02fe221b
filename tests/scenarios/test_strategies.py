import httpx
import orjson
from hypothesis import given, settings

from miles_sim.agent.plan import Plan, Retry, asked, walk
from miles_sim.agent.player import play_plan
from miles_sim.ledger import Turn
from miles_sim.scenarios.model import Scenario
from miles_sim.scenarios.strategies import plans, scenarios


@given(plans(linear=True))
def test_linear_plans_have_neither_subagent_nor_compaction(plan: Plan) -> None:
    assert {step.do for _, step in walk(plan.steps)} <= {"say", "tool", "retry"}


@given(scenarios())
def test_scenarios_survive_a_round_trip(scenario: Scenario) -> None:
    assert Scenario.model_validate(scenario.model_dump(mode="json")) == scenario


@settings(max_examples=30, deadline=None)
@given(plans())
async def test_every_drawn_plan_plays_to_its_end(plan: Plan) -> None:
    replies = {question.tag: question.replies for question in asked(plan.steps)}
    seen: dict[str, int] = {}

    def answer(request: httpx.Request) -> httpx.Response:
        tag = orjson.loads(request.content)["messages"][-1]["content"].rsplit("[", 1)[1][:-1]
        attempt = seen[tag] = seen.get(tag, -1) + 1
        calls = [
            {"id": f"{tag}-{n}", "type": "function", "function": {"name": call.name, "arguments": "{}"}}
            for n, call in enumerate(replies[tag][attempt].tool_calls)
        ]
        message = {"role": "assistant", "content": "text", "tool_calls": calls or None}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        return httpx.Response(200, json={"id": f"{tag}#{attempt}", "choices": [choice]})

    journal: list[Turn] = []
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        await play_plan(plan, client=client, base_url="http://s", request_kwargs={}, rollout=0, seed=0, journal=journal)

    asking = [key for key, step in walk(plan.steps) if step.do not in ("subagent", "parallel")]
    assert [turn.step for turn in journal] == asking
    assert sum(turn.retry_of is not None for turn in journal) == sum(
        isinstance(step, Retry) for _, step in walk(plan.steps)
    )
    assert sum(len(r) for r in replies.values()) == len(journal)
