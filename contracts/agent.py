"""Agent: how a run that failed is told from one that ended."""

from collections.abc import Mapping
from typing import Any

from miles_sim.agent.plan import walk
from miles_sim.agent.steps import Crash
from miles_sim.targets.observation import SampleView
from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.rule import RolloutCase


@rule(
    "status/agent-failure-told",
    level="meaning",
    reason="A conversation that broke off for want of a sandbox is scored, and trained, as one that the model ended.",
    source="miles agentic_tool_call logs the exception and collects as ever; miles PR #2801",
)
def agent_failure_told(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """Where the agent raised, its samples say so: by a status of their own, or in their metadata."""
    crashes = [step.message for _, step in walk(case.scenario.plan.steps) if isinstance(step, Crash)]
    if not crashes or case.session == "direct" or not rollout.view.agent_ran:
        return
    if any(turn.status != 200 for turn in rollout.turns):
        return  # it failed before it came to its crash
    told = sample.status in ("aborted", "failed") or any(message in _text(sample.metadata) for message in crashes)
    see.that(told, "nothing tells that the agent failed", expected=crashes[0], found=sample.status)


def _text(value: Any) -> str:
    """All strings in metadata."""
    if isinstance(value, Mapping):
        return "\n".join(_text(item) for item in value.values())
    if isinstance(value, list | tuple):
        return "\n".join(_text(item) for item in value)
    return value if isinstance(value, str) else ""
