"""Hypothesis strategies for plans and scenarios. Needs the `test` extra."""

from typing import Any

from hypothesis import strategies as st

from miles_sim.agent.history import History
from miles_sim.agent.plan import Compact, Parallel, Plan, Retry, Say, Step, Subagent, Tool
from miles_sim.engine.settings import EngineSettings, Speculative
from miles_sim.reply import Reply, ToolCall
from miles_sim.scenarios.model import RolloutInput, Sampling, Scenario

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "run_tests",
        "description": "Runs the test suite of one folder.",
        "parameters": {"type": "object", "properties": {"folder": {"type": "string"}}},
    },
}


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    """Short replies, some with one or two tool calls."""
    calls = draw(st.sampled_from((0, 0, 0, 1, 2)))
    folders = draw(st.lists(st.sampled_from(("tests", "src", "größe")), min_size=calls, max_size=calls))
    return Reply(
        tokens=draw(st.integers(1, 30)),
        tool_calls=tuple(ToolCall(name="run_tests", arguments={"folder": folder}) for folder in folders),
    )


@st.composite
def plans(draw: st.DrawFn, *, linear: bool = False, max_steps: int = 5, depth: int = 2) -> Plan:
    """Plans that play to their end: no crash, no cut reply.

    `linear`: one line, as v1 sessions serve it. `depth`: how deep subagents nest.
    """
    steps = draw(_steps(History(), "", max_steps, 0 if linear else depth, linear))
    reward = draw(st.none() | st.sampled_from((0.0, 0.5, 1.0)))
    return Plan(tools=(TOOL,), steps=steps, returns=None if reward is None else {"reward": reward})


@st.composite
def _steps(
    draw: st.DrawFn, history: History, prefix: str, max_steps: int, depth: int, linear: bool
) -> tuple[Step, ...]:
    steps: list[Step] = []
    for number in range(1, draw(st.integers(1, max_steps)) + 1):
        key = f"{prefix}{number}"
        kind = draw(st.sampled_from(_kinds(history, depth=depth, linear=linear)))
        if kind in ("subagent", "parallel"):
            count = 1 if kind == "subagent" else draw(st.integers(2, 3))
            names = [key] if count == 1 else [f"{key}.{branch}" for branch in range(1, count + 1)]
            subagents = tuple(draw(_subagent(history, name, max_steps, depth)) for name in names)
            steps.append(subagents[0] if count == 1 else Parallel(branches=subagents))
            continue
        reply = draw(replies())
        steps.append(_ask(draw, kind, reply))
        _grow(history, steps[-1], key, reply)
    return tuple(steps)


def _kinds(history: History, *, depth: int, linear: bool) -> list[str]:
    kinds = ["say", "say"]
    if history.replies and history.replies[-1][1].tool_calls:
        kinds += ["tool"] * 3
    if history.asks:
        kinds.append("retry")
    if history.replies and not linear:
        kinds.append("compact")
    if depth:
        kinds += ["subagent", "parallel"]
    return kinds


def _ask(draw: st.DrawFn, kind: str, reply: Reply) -> Say | Tool | Retry | Compact:
    if kind == "tool":
        return Tool(reply=reply, words=draw(st.integers(0, 6)))
    if kind == "retry":
        return Retry(reply=reply)
    if kind == "compact":
        # A history has two messages at least, so a tail of one always cuts something off.
        return Compact(reply=reply, keep=draw(st.sampled_from(("summary", "tail"))), tail=1)
    return Say(reply=reply, words=draw(st.integers(0, 8)))


def _grow(history: History, step: Step, key: str, reply: Reply) -> None:
    if isinstance(step, Tool):
        history.add(key, reply, *["tool"] * len(history.replies[-1][1].tool_calls))
    elif isinstance(step, Retry):
        history.replies[-1] = (key, reply, len(history.roles))
    else:
        if isinstance(step, Compact):
            history.cut(step.tail if step.keep == "tail" else 0)
        history.add(key, reply, "user")


@st.composite
def _subagent(draw: st.DrawFn, history: History, key: str, max_steps: int, depth: int) -> Subagent:
    start = draw(st.sampled_from(("fresh", "fork") if history.replies else ("fresh",)))
    known = [step for step, _, _ in history.replies]
    at = draw(st.none() | st.sampled_from(known)) if start == "fork" else None
    inner = History() if start == "fresh" else history.fork(at or known[-1])
    return Subagent(
        start=start,
        at=at,
        returns=draw(st.booleans()),
        steps=draw(_steps(inner, f"{key}.", max(1, max_steps // 2), depth - 1, False)),
    )


@st.composite
def scenarios(draw: st.DrawFn, *, linear: bool | None = None) -> Scenario:
    """Scenarios of one to three rollouts. `linear`: None for either kind of plan."""
    line = draw(st.booleans()) if linear is None else linear
    explicit = draw(st.booleans())
    count = draw(st.integers(1, 3))
    return Scenario(
        name="drawn",
        title="Drawn by Hypothesis",
        seed=draw(st.integers(0, 2**16)),
        sessions=("v1", "v2") if line else ("v2",),
        engine=EngineSettings(
            tokenizer=draw(st.sampled_from(("chatml", "delimiter"))),
            speculative=draw(st.none() | st.just(Speculative())),
            prefix_cache=draw(st.booleans()),
        ),
        rollouts=tuple(RolloutInput(index=n, rollout_id=100 + n if explicit else None) for n in range(count)),
        sampling=Sampling(max_new_tokens=512),
        plan=draw(plans(linear=line)),
    )
