"""The agent's part where the engine is asked directly: what is asked first, and what each tool call is answered."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from miles_sim.agent.conversation import Message
from miles_sim.agent.errors import AgentReplyError
from miles_sim.agent.plan import Plan, Say, Tool, keyed
from miles_sim.agent.words import tagged, work_words
from miles_sim.ledger import Generation, Turn


def opening(plan: Plan, seed: int) -> list[Message]:
    """The messages that the first reply is asked with: the player's own."""
    key, step = next(keyed(plan.steps))
    if not isinstance(step, Say):
        raise AgentReplyError(f"step {key!r}: a direct play begins with a say")
    tag = step.tag or key
    text = work_words(seed, tag, step.words) if step.text is None else step.text
    system: list[Message] = [] if plan.system is None else [{"role": "system", "content": plan.system}]
    return [*system, {"role": "user", "content": tagged(text, tag)}]


def results(plan: Plan, seed: int) -> Iterator[str]:
    """What each tool call of a play is answered with, in order."""
    calls = 0
    for key, step in keyed(plan.steps):
        if isinstance(step, Tool):
            for number in range(calls):
                yield tagged(work_words(seed, f"{key}:{number}", step.words), key)
        calls = len(step.reply.tool_calls) if isinstance(step, Say | Tool) else 0


class ToolBench:
    """Answers the tool calls of one rollout, as an `AgentFunction` of a direct play does."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self._results = results(plan, seed)

    async def call(self, request_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """`AgentReplyError` for a call that no reply of the plan makes."""
        result = next(self._results, None)
        if result is None:
            raise AgentReplyError(f"tool {request_kwargs.get('name')!r}: one call more than the plan's replies make")
        return {"content": result}


def turns(plan: Plan, rollout: int, generations: Sequence[Generation]) -> tuple[Turn, ...]:
    """What the driver asked for the agent: one turn a prompt, first asked first, each behind the one before.

    Of a prompt that was asked more than once the last answer counts: the others could not be read.
    """
    steps = list(keyed(plan.steps))
    found: list[Turn] = []
    ordered = sorted(generations, key=lambda g: (len(g.prompt_ids), g.attempt))
    for number, (_, same) in enumerate(groupby(ordered, key=lambda g: g.prompt_ids)):
        *unread, generation = same
        key, kind = (steps[number][0], steps[number][1].do) if number < len(steps) else (f"beyond-{number}", "tool")
        found.append(
            Turn(
                rollout=rollout,
                step=key,
                kind=kind,
                parent=found[-1].step if found else None,
                retry_of=None,
                status=200,
                response_id=generation.id,
                finish_reason=str(generation.finish_reason["type"]),
                failed=(200,) * len(unread),
            )
        )
    return tuple(found)
