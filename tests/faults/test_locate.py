"""Requests are told apart by what they ask."""

import json
from typing import Any

import pytest

from miles_sim.agent.plan import Plan
from miles_sim.agent.steps import MAX_DRAWS
from miles_sim.faults.locate import Locator, Spot, edge_of, questions
from miles_sim.faults.strike import Asked

PLAN = Plan.model_validate(
    {
        "steps": [
            {"do": "say"},
            {"do": "subagent", "steps": [{"do": "say"}]},
            {"do": "say", "key": "again", "tag": "1", "draw": 1},
            {"do": "say", "key": "last"},
            {"do": "retry"},
        ]
    }
)
BASE = 1000


@pytest.fixture
def locate() -> Locator:
    return Locator(PLAN, BASE, [0, 2], lambda ids: "".join(map(chr, ids)))


def asked(path: str, body: Any = None, method: str = "POST") -> Asked:
    return Asked(method, path, (), json.dumps(body).encode())


def chat(text: str, seed: int, path: str = "/v1/chat/completions") -> Asked:
    return asked(
        path, {"messages": [{"role": "user", "content": "[1] old"}, {"role": "user", "content": text}], "seed": seed}
    )


def test_questions_stand_in_the_plans_order_and_a_retry_is_none() -> None:
    assert [question.key for question in questions(PLAN)] == ["1", "2.1", "again", "last"]


def test_the_tag_of_the_last_message_is_the_step_and_the_seed_the_rollout(locate: Locator) -> None:
    assert locate(chat("words [2.1]", BASE + 3 * MAX_DRAWS)) == Spot("engine", 3, 1, "2.1")


def test_steps_with_one_tag_are_told_apart_by_their_draw(locate: Locator) -> None:
    assert locate(chat("words [1]", BASE)) == Spot("engine", 0, 0, "1")
    assert locate(chat("words [1]", BASE + 1)) == Spot("engine", 0, 2, "again")


def test_a_session_is_another_edge_than_the_engine(locate: Locator) -> None:
    spot = locate(chat("words [1]", BASE, "/sessions/abc/v1/chat/completions"))
    assert spot == Spot("session", 0, 0, "1")


def test_a_direct_request_is_told_by_the_end_of_its_prompt(locate: Locator) -> None:
    ids = [ord(character) for character in "see [1] then [2.1] go"]
    body = {"input_ids": ids, "sampling_params": {"sampling_seed": BASE + MAX_DRAWS}}
    assert locate(asked("/generate", body)) == Spot("engine", 1, 1, "2.1")


@pytest.mark.parametrize(
    "request_",
    [
        asked("/health", method="GET"),
        asked("/v1/models", method="GET"),
        asked("/sessions/abc/health", method="GET"),
        asked("/v1/chat/completions", "no object"),
        asked("/v1/chat/completions", {"messages": []}),
        chat("words [9]", BASE),
        chat("no tag", BASE),
        chat("words [1]", BASE - 1),
    ],
)
def test_what_is_not_of_the_plan_is_nowhere(locate: Locator, request_: Asked) -> None:
    assert locate(request_) is None


def test_sessions_are_opened_in_the_rollouts_order_and_later_known_by_their_id(locate: Locator) -> None:
    assert [locate(asked("/sessions", {})) for _ in range(3)] == [
        Spot("driver", 0, 0, "open"),
        Spot("driver", 2, 0, "open"),
        None,
    ]
    locate.told(2, "http://127.0.0.1:1/sessions/abc/")
    assert locate(asked("/sessions/abc/samples", {})) == Spot("driver", 2, 1, "collect")
    assert locate(asked("/sessions/abc", method="DELETE")) == Spot("driver", 2, 2, "delete")
    assert locate(asked("/sessions/abc", method="GET")) == Spot("driver", 2, 1, "collect")
    assert locate(asked("/sessions/other", method="DELETE")) is None


def test_a_driver_may_say_for_whom_it_opens_a_session(locate: Locator) -> None:
    for rollout in (2, 0, 0, 2, 2):
        told = Asked("POST", "/sessions", (("X-Miles-Sim-Rollout", str(rollout)),), b"{}")
        assert locate(told) == Spot("driver", rollout, 0, "open")


def test_an_edge_is_told_by_the_path_alone() -> None:
    paths = ["/generate", "/sessions/a/v1/chat/completions", "/sessions", "/sessions/a/samples?x=1", "/health"]
    assert [edge_of(path) for path in paths] == ["engine", "session", "driver", "driver", None]
