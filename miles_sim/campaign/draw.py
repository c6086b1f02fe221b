"""Random scenarios under random faults: a pure function of the campaign's seed and the scenario's number.

Hypothesis draws the same kind of thing for searching and shrinking; here a hundred rollouts a second are due, and each
number must give its scenario by itself, whoever asks.
"""

from collections.abc import Sequence
from hashlib import blake2b
from random import Random
from typing import Any

from miles_sim.agent.history import History
from miles_sim.agent.plan import Plan, walk
from miles_sim.agent.steps import Ask, Compact, Parallel, Retry, Say, Step, Subagent, Tool
from miles_sim.engine.settings import EngineSettings, Speculative
from miles_sim.faults.plan import Fault, When, Where
from miles_sim.reply import Reply, ToolCall
from miles_sim.scenarios.model import RolloutInput, Sampling, Scenario

MOST_FAULTS = 3
TRIES = 20
"""Plans of faults drawn for a scenario before it goes without: some fit no step of it."""
FAMILIES = ("chatml", "chatml", "delimiter", "qwen3", "deepseek", "glm", "kimi")
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "run_tests", "parameters": {"type": "object", "properties": {"folder": {"type": "string"}}}},
}


def drawn(seed: int, number: int, *, kinds: Sequence[str], rollouts: int) -> Scenario:
    """Scenario `number` of the campaign with that seed: `rollouts` rollouts of one plan, up to three faults of `kinds`.

    Two thirds of the agents ask again when a request fails.
    """
    random = Random(blake2b(f"campaign:{seed}:{number}".encode(), digest_size=16).digest())
    linear = random.random() < 0.5
    plan = Plan(
        tools=(TOOL,),
        steps=_Steps(random, linear).drawn(History(), "", depth=0 if linear else 2, most=3),
        retries=random.choice((0, 2, 3)),
        returns=random.choice((None, {"reward": 1.0}, {"reward": 0.0})),
    )
    plain = Scenario(
        name=f"campaign-{number}",
        title=f"Scenario {number} of the campaign with seed {seed}",
        seed=random.getrandbits(31),
        sessions=("v1", "v2") if linear else ("v2",),
        engine=_engine(random),
        rollouts=tuple(RolloutInput(index=n, group_index=n // 4) for n in range(rollouts)),
        sampling=Sampling(max_new_tokens=256),
        plan=plan,
    )
    return _struck(plain, random, kinds)


def _engine(random: Random) -> EngineSettings:
    return EngineSettings(
        tokenizer=random.choice(FAMILIES),
        speculative=random.choice((None, Speculative())),
        prefix_cache=random.random() < 0.8,
        weight_version=random.choice(("default", "7")),
    )


def _struck(scenario: Scenario, random: Random, kinds: Sequence[str]) -> Scenario:
    """With faults that can strike it; a plan that is refused is drawn anew."""
    if not kinds:
        return scenario
    keys = [key for key, step in walk(scenario.plan.steps) if isinstance(step, Ask)]
    for _ in range(TRIES):
        faults = tuple(
            _fault(random, kinds, keys, len(scenario.rollouts)) for _ in range(random.randint(1, MOST_FAULTS))
        )
        try:
            return Scenario.model_validate({**dict(scenario), "faults": faults})
        except ValueError:
            continue
    return scenario


def _fault(random: Random, kinds: Sequence[str], keys: Sequence[str], rollouts: int) -> Fault:
    step = random.choice((None, random.choice(keys)))
    when = random.choice(
        (When(first=1), When(first=2), When(every=random.randint(1, 3)), When(probability=0.3), When())
    )
    return Fault(
        kind=random.choice(kinds),
        where=Where(rollout=random.choice((None, random.randrange(rollouts))), step=step),
        when=when,
    )


class _Steps:
    """Draws the steps of one plan."""

    def __init__(self, random: Random, linear: bool) -> None:
        self._random = random
        self._linear = linear

    def drawn(self, history: History, prefix: str, *, depth: int, most: int) -> tuple[Step, ...]:
        steps: list[Step] = []
        for number in range(1, self._random.randint(1, most) + 1):
            key = f"{prefix}{number}"
            kind = self._random.choice(self._kinds(history, depth))
            if kind == "subagent":
                steps.append(self._subagent(history, key, depth, most))
            elif kind == "parallel":
                branches = tuple(self._subagent(history, f"{key}.{n}", depth, 1) for n in (1, 2))
                steps.append(Parallel(branches=branches))
            else:
                steps.append(self._ask(kind, history, key))
        return tuple(steps)

    def _kinds(self, history: History, depth: int) -> list[str]:
        kinds = ["say", "say", "say"]
        if history.replies and history.replies[-1][1].tool_calls:
            kinds += ["tool"] * 4
        if history.asks:
            kinds.append("retry")
        if history.replies and not self._linear:
            kinds.append("compact")
        return kinds + (["subagent", "parallel"] if depth else [])

    def _ask(self, kind: str, history: History, key: str) -> Ask:
        reply = self._reply()
        if kind == "tool":
            history.add(key, reply, *["tool"] * len(history.replies[-1][1].tool_calls))
            return Tool(reply=reply, words=self._random.randint(0, 6))
        if kind == "retry":
            history.replies[-1] = (key, reply, len(history.roles))
            return Retry(reply=reply)
        if kind == "compact":
            keep = self._random.choice(("summary", "tail"))
            history.cut(1 if keep == "tail" else 0)
            history.add(key, reply, "user")
            return Compact(reply=reply, keep=keep, tail=1)
        history.add(key, reply, "user")
        return Say(reply=reply, words=self._random.randint(0, 8))

    def _reply(self) -> Reply:
        folders = self._random.choice(((), (), ("tests",), ("src", "größe")))
        return Reply(
            tokens=self._random.randint(1, 24),
            tool_calls=tuple(ToolCall(name="run_tests", arguments={"folder": folder}) for folder in folders),
        )

    def _subagent(self, history: History, key: str, depth: int, most: int) -> Subagent:
        fork = bool(history.replies) and self._random.random() < 0.5
        known = [step for step, _, _ in history.replies]
        at = self._random.choice((None, *known)) if fork else None
        inner = history.fork(at or known[-1]) if fork else History()
        return Subagent(
            start="fork" if fork else "fresh",
            at=at,
            returns=self._random.random() < 0.5,
            steps=self.drawn(inner, f"{key}.", depth=depth - 1, most=max(1, most - 1)),
        )
