from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.agent.plan import asked
from miles_sim.reply import ReplyRule
from miles_sim.scenarios.compile import engine_settings, sampling
from miles_sim.scenarios.model import Scenario
from miles_sim.scenarios.strategies import scenarios


def scenario(steps: list[Any], **fields: Any) -> Scenario:
    return Scenario.model_validate({"name": "s", "title": "t", "plan": {"steps": steps}} | fields)


def matched(rules: tuple[ReplyRule, ...], text: str, attempt: int) -> ReplyRule | None:
    """The rule that an engine takes: the first that matches."""
    return next((r for r in rules if r.contains in text and r.attempt in (None, attempt)), None)


def test_a_retry_is_a_further_attempt_of_the_same_tag() -> None:
    steps = [{"do": "say", "reply": {"tokens": 1}}] + [{"do": "retry", "reply": {"tokens": n}} for n in (2, 3)]
    rules = engine_settings(scenario(steps)).rules
    assert [(r.contains, r.attempt, r.reply.tokens) for r in rules] == [("[1]", 0, 1), ("[1]", 1, 2), ("[1]", None, 3)]


def test_own_rules_of_the_engine_come_first() -> None:
    own = {"contains": "hello", "reply": {"tokens": 9}}
    rules = engine_settings(scenario([{"do": "say", "text": "hello"}], engine={"rules": [own]})).rules
    assert [rule.contains for rule in rules] == ["hello", "[1]"]


def test_twins_share_one_rule() -> None:
    branches = [{"steps": [{"do": "say", "tag": "twin", "draw": n}]} for n in (0, 1)]
    rules = engine_settings(scenario([{"do": "parallel", "branches": branches}])).rules
    assert [(rule.contains, rule.attempt) for rule in rules] == [("[twin]", None)]


@given(scenarios())
def test_every_question_gets_its_own_reply_at_each_attempt(drawn: Scenario) -> None:
    rules = engine_settings(drawn).rules
    for question in asked(drawn.plan.steps):
        for attempt, reply in enumerate(question.replies):
            rule = matched(rules, f"some words [{question.tag}]", attempt)
            assert rule is not None
            assert rule.reply == reply


def test_sampling_speaks_miles_names() -> None:
    values = sampling(scenario([], sampling={"max_new_tokens": 9, "temperature": 0.5}), 0)
    assert values == {"max_new_tokens": 9, "temperature": 0.5, "top_p": 1.0, "sampling_seed": values["sampling_seed"]}


@given(st.integers(0, 2**64), st.integers(0, 999), st.integers(0, 999))
def test_rollouts_draw_apart_whatever_their_draws(seed: int, one: int, other: int) -> None:
    drawn = scenario([], seed=seed)
    first, second = sampling(drawn, one)["sampling_seed"], sampling(drawn, other)["sampling_seed"]
    assert 0 <= first < 2**31 - 1024
    assert (one == other) == (abs(first - second) < 1024)


@pytest.mark.parametrize("seed", [0, 1])
def test_sampling_seed_is_the_same_on_every_machine(seed: int) -> None:
    assert sampling(scenario([], seed=seed), 2)["sampling_seed"] == [3221212, 1059924871][seed] + 2 * 1024
