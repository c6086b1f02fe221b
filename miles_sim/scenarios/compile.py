"""From a scenario to what engine and target are given."""

from hashlib import blake2b
from typing import Any

from miles_sim.agent.plan import asked
from miles_sim.agent.steps import MAX_DRAWS
from miles_sim.engine.settings import EngineSettings
from miles_sim.reply import ReplyRule
from miles_sim.scenarios.model import Scenario, SessionVersion


def engine_settings(scenario: Scenario, session: SessionVersion = "v2") -> EngineSettings:
    """The scenario's engine with a rule for each reply of the plan, behind the scenario's own rules.

    A retry is one more attempt of the request that it repeats; the last one answers any further attempt too. Where
    the engine is asked directly, a rule is found in the whole prompt: the latest question goes first.
    """
    groups: list[list[ReplyRule]] = []
    spoiled = _spoiled(scenario)
    tags = set()
    for question in asked(scenario.plan.steps):
        if question.tag in tags:  # the same words, and so the same reply
            continue
        tags.add(question.tag)
        last = len(question.replies) - 1
        planned = [
            ReplyRule(contains=f"[{question.tag}]", attempt=attempt if attempt < last else None, reply=reply)
            for attempt, reply in enumerate(question.replies)
        ]
        groups.append([*spoiled.get(question.tag, ()), *planned])
    if session == "direct":
        groups.reverse()
    rules = [rule for group in groups for rule in group]
    return scenario.engine.model_copy(update={"rules": (*scenario.engine.rules, *rules)})


def _spoiled(scenario: Scenario) -> dict[str, list[ReplyRule]]:
    """Of each tag the replies that a fault changes: each in one rollout, at one attempt."""
    found: dict[str, list[ReplyRule]] = {}
    if not scenario.faults:
        return found
    from miles_sim.faults.locate import questions
    from miles_sim.scenarios.spoiled import spoiled_replies

    by_key = {question.key: question for question in questions(scenario.plan)}
    for spoiled in spoiled_replies(scenario):
        place, question = spoiled.place, by_key[spoiled.place.step]
        seed = sampling(scenario, place.rollout)["sampling_seed"] + question.draw
        rule = ReplyRule(contains=f"[{question.tag}]", attempt=place.attempt, seed=seed, reply=spoiled.reply)
        found.setdefault(question.tag, []).append(rule)
    return found


def sampling(scenario: Scenario, rollout: int) -> dict[str, Any]:
    """Sampling parameters of one rollout under miles' names.

    Each rollout has a `sampling_seed` of its own, `MAX_DRAWS` apart, so that no two ever ask the very same thing.
    """
    base = int.from_bytes(blake2b(f"sampling:{scenario.seed}".encode(), digest_size=4).digest(), "big") >> 2
    return {
        "max_new_tokens": scenario.sampling.max_new_tokens,
        "temperature": scenario.sampling.temperature,
        "top_p": scenario.sampling.top_p,
        "sampling_seed": base + rollout * MAX_DRAWS,
    }
