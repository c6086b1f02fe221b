"""A scenario for each kind of fault alone: it strikes one of two rollouts, at the second question."""

from typing import Any

from miles_sim.faults.kind import Kind
from miles_sim.scenarios.model import Scenario, SessionVersion

SESSIONS: tuple[SessionVersion, ...] = ("v1", "v2", "direct")
_TOOL = {"type": "function", "function": {"name": "t", "parameters": {"type": "object", "properties": {"a": {}}}}}
_CALL = {"tokens": 4, "reasoning": 3, "tool_calls": [{"name": "t", "arguments": {"a": "x", "b": 1}}]}
DIRECT_EDGES = ("engine", "model")
"""Where a direct play can be struck."""


def single(kind: Kind, sessions: tuple[SessionVersion, ...] = SESSIONS) -> Scenario:
    """Two rollouts of three turns, the first one struck. Of `sessions`, those in which the kind has a place."""
    served = [session for session in sessions if session != "direct" or kind.edge in DIRECT_EDGES]
    return tools_scenario(
        name=f"single-{kind.name}"[:64],
        title=kind.statement[:120],
        sessions=tuple(served),
        rollouts=tuple({"index": number} for number in range(2)),
        faults=({"kind": kind.name, "where": {"rollout": 0, "step": kind.at or "2"}},),
    )


def tools_scenario(*, retries: int = 0, **fields: Any) -> Scenario:
    """An agent of three turns with thoughts and tool calls, before an engine that drafts and has experts."""
    steps = ({"do": "say", "reply": _CALL}, {"do": "tool", "reply": _CALL}, {"do": "tool"})
    engine = {"tokenizer": "qwen3", "speculative": {}, "experts": {"layers": 2, "topk": 2}, "weight_version": "3"}
    plan = {"tools": (_TOOL,), "steps": steps, "retries": retries, "returns": {"reward": 1.0}}
    return Scenario.model_validate(
        {"engine": engine, "routing_replay": True, "sampling": {"max_new_tokens": 256}, "plan": plan, **fields}
    )
