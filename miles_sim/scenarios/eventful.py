"""Hypothesis strategies for scenarios in which things go wrong: cuts, crashes, limits. Needs the `test` extra.

`miles_sim.scenarios.strategies.scenarios` draws plans that play to their end; `eventful` draws whatever may happen to
them. Both shrink towards one rollout of one short turn on a plain engine.
"""

from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

from miles_sim.agent.plan import Plan, walk
from miles_sim.agent.steps import Ask, Compact, Crash, Parallel, Retry, Say, Step, Subagent, Tool
from miles_sim.engine import profiles
from miles_sim.engine.settings import EngineSettings, Speculative
from miles_sim.scenarios.model import RolloutInput, Sampling, Scenario
from miles_sim.scenarios.strategies import plans
from miles_sim.tokenizer import FAMILIES

SPECULATIVE = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM")
LATEST = "sglang-0.5.16"
"""The profile that draws shrink to: the default of `EngineSettings`."""


@st.composite
def speculative(draw: st.DrawFn) -> Speculative:
    """Any algorithm, two to eight draft ids, acceptance from never to always."""
    chances = st.sampled_from((0.5, 0.0, 0.1, 0.9, 1.0))
    return Speculative.model_validate(
        {
            "algorithm": draw(st.sampled_from(SPECULATIVE)),
            "draft_tokens": draw(st.integers(2, 8)),
            "acceptance": draw(st.lists(chances, min_size=1, max_size=4)),
        }
    )


@lru_cache
def session_profiles() -> tuple[str, ...]:
    """Releases whose chat endpoint takes the ids that a session server sends; the others pass them over."""
    found = [name for name in profiles.names() if "input_ids" in profiles.load(name).chat.fields]
    return tuple(sorted(found, key=lambda name: (name != LATEST, name)))


@st.composite
def engines(draw: st.DrawFn) -> EngineSettings:
    """Every tokenizer family, every profile that takes ids; with and without speculative decoding and prefix cache."""
    return EngineSettings(
        profile=draw(st.sampled_from(session_profiles())),
        tokenizer=draw(st.sampled_from(sorted(FAMILIES))),
        speculative=draw(st.none() | speculative()),
        prefix_cache=draw(st.sampled_from((True, False))),
        weight_version=draw(st.sampled_from(("default", "0", "7"))),
    )


@st.composite
def eventful_plans(draw: st.DrawFn, *, linear: bool = False) -> Plan:
    """Any plan, in which a reply may be cut by the request's own bound or aborted, and the agent may crash."""
    plan = draw(plans(linear=linear))
    steps = tuple([draw(_eventful(step)) for step in plan.steps])
    if draw(st.sampled_from((False, False, False, True))):
        at = draw(st.integers(0, len(steps)))
        steps = (*steps[:at], Crash(), *steps[at:])
    fields = {name: value for name, value in plan if name != "steps"}
    if not _calls_tools(steps):
        fields["tools"] = ()
    return Plan(**fields, steps=steps) if _valid(fields, steps) else plan


@st.composite
def _eventful(draw: st.DrawFn, step: Step) -> Step:
    """The step with what may befall its own reply."""
    if isinstance(step, Crash | Subagent | Parallel):
        return step
    event = draw(st.sampled_from(("none", "none", "none", "cut", "aborted", "silent")))
    if event == "aborted":
        return _with_reply(step, abort_after=draw(st.integers(0, step.reply.tokens)))
    if event == "silent":
        return _with_reply(step, tokens=0)
    if event == "cut" and hasattr(step, "max_tokens"):
        return step.model_copy(update={"max_tokens": draw(st.integers(1, 12))})
    return step


def _calls_tools(steps: tuple[Step, ...]) -> bool:
    return any(isinstance(step, Ask) and step.reply.tool_calls for _, step in walk(steps))


def _with_reply(step: Say | Tool | Compact | Retry, **update: Any) -> Step:
    return step.model_copy(update={"reply": step.reply.model_copy(update=update)})


def _valid(fields: dict[str, Any], steps: tuple[Step, ...]) -> bool:
    """A crash between two steps changes the keys that later ones may name."""
    try:
        Plan(**fields, steps=steps)
    except ValueError:
        return False
    return True


@st.composite
def _inputs(draw: st.DrawFn, number: int, explicit: bool, group: int) -> RolloutInput:
    """The input of rollout `number`: the groups of `group` rollouts each lie one behind the other, as in any batch."""
    return RolloutInput(
        index=7 + number,
        rollout_id=100 + number if explicit else None,
        group_index=number // group,
        label=draw(st.sampled_from((None, "right"))),
        metadata=draw(st.sampled_from(({}, {"task": "parser"}))),
    )


@st.composite
def eventful(draw: st.DrawFn, *, linear: bool | None = None) -> Scenario:
    """One to three rollouts of an eventful plan under any engine and limit. `linear`: None for either kind of plan."""
    line = draw(st.sampled_from((True, False))) if linear is None else linear
    explicit = draw(st.sampled_from((False, True)))
    count = draw(st.integers(1, 3))
    group = draw(st.integers(1, count))
    return Scenario(
        name="drawn",
        title="Drawn by Hypothesis",
        seed=draw(st.integers(0, 2**16)),
        sessions=("v1", "v2") if line else ("v2",),
        engine=draw(engines()),
        rollouts=tuple([draw(_inputs(number, explicit, group)) for number in range(count)]),
        sampling=Sampling(max_new_tokens=draw(st.sampled_from((64, 512, 6)))),
        max_seq_len=draw(st.none() | st.integers(1, 900)),
        plan=draw(eventful_plans(linear=line)),
    )
