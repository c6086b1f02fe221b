"""Faults of agent, session server, consumer and engine life in whole plays on the reference."""

import asyncio
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pytest

from miles_sim.agent.exchange import Exchange
from miles_sim.faults.catalogue import kinds
from miles_sim.rollout.session.server import SessionServer
from miles_sim.scenarios import library
from miles_sim.scenarios.model import Scenario
from miles_sim.targets.observation import SampleView
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.transport import LocalNetwork
from miles_sim.verify.judge import judge
from miles_sim.verify.pack import load_pack
from miles_sim.verify.play import play
from miles_sim.verify.rule import Case


def played(scenario: Scenario, session: Any = "v2") -> Case:
    async def run() -> Case:
        network = LocalNetwork()
        return await play(scenario, ReferenceTarget(network), session=session, network=network, timeout=20)

    return asyncio.run(run())


def case(name: str, session: Any = "v2") -> Case:
    return played(library.load(f"fault-{name}"), session)


def without_faults(name: str, session: Any = "v2") -> Case:
    return played(library.load(f"fault-{name}").model_copy(update={"faults": ()}), session)


def bare(samples: tuple[SampleView, ...]) -> list[Any]:
    return [(s.tokens, s.loss_mask, s.rollout_log_probs, s.status, s.reward, s.spec_info) for s in samples]


TOLERATED = [
    "agent-asks-after-collect",
    "agent-asks-after-delete",
    "agent-returns-reserved",
    "consumer-two-collects",
    "engine-flush",
    "engine-restart-retried",
    "engine-retract",
    "engine-starting-retried",
    "engine-update-between",
    "engine-update-mid-reply",
    "session-collect-lost-once",
    "session-collect-slow",
    "session-collect-twice",
    "session-delete-lost",
    "session-delete-stalled",
    "session-delete-twice",
]


@pytest.mark.parametrize("name", TOLERATED)
def test_what_is_tolerated_gives_the_samples_of_a_play_without_it(name: str) -> None:
    struck, plain = case(name), without_faults(name)
    assert struck.ledger.fired
    assert [bare(rollout.samples) for rollout in struck.rollouts] == [
        bare(rollout.samples) for rollout in plain.rollouts
    ]


@pytest.mark.parametrize("session", ["v1", "v2"])
@pytest.mark.parametrize("name", ["consumer-timeout-retried", "consumer-hangs-up-retried"])
def test_who_asks_again_what_he_never_read_gets_samples_of_the_reply_that_he_did(name: str, session: Any) -> None:
    struck = played(library.load(f"fault-{name}").model_copy(update={"sessions": (session,)}), session)
    (rollout,) = struck.rollouts
    (sample,) = rollout.samples
    (fired,) = struck.ledger.fired
    (lost,) = fired.lost
    unread = struck.ledger.generation(lost)
    assert unread is not None
    answered = {turn.response_id for turn in rollout.turns}
    read = [generation.output_ids for generation in rollout.generations if generation.id in answered]
    assert sum(sample.loss_mask or ()) == sum(map(len, read))
    assert unread.output_ids not in read


@pytest.mark.parametrize("stage", ["open", "asking", "generating", "answered", "collect", "delete"])
@pytest.mark.parametrize("session", ["v1", "v2"])
def test_a_rollout_can_be_cancelled_at_every_stage_and_leaves_nothing(stage: str, session: Any) -> None:
    struck = case(f"consumer-cancels-{stage}", session)
    first, second = struck.rollouts
    assert first.view.error is not None
    assert (first.view.error.type, list(first.samples)) == ("CancelledError", [])
    assert [sample.status for sample in second.samples] == ["completed"]
    assert (struck.observation.sessions_open, struck.observation.requests_open) == (0, 0)


@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_an_agent_that_hangs_up_leaves_no_request_open_and_no_reply_that_it_did_not_stay_for(moment: str) -> None:
    struck = case(f"consumer-hangs-up-{moment}")
    (sample,) = struck.rollouts[0].samples
    assert sample.metadata["agent_error"]["message"].startswith("step '2': no answer")
    segments = [segment for segment in sample.metadata["lifecycle"] if segment["span"] is not None]
    assert len(segments) == (2 if moment == "after" else 1)
    assert (struck.observation.sessions_open, struck.observation.requests_open) == (0, 0)


def test_an_engine_that_died_answers_nobody_any_more() -> None:
    struck = case("engine-death-retried")
    assert [turn.failed for turn in struck.ledger.turns] == [(), (502, 502)]
    assert [fired.attempt for fired in struck.ledger.fired] == [0, 1, 2]


def test_a_session_that_is_full_refuses_and_keeps_what_it_has() -> None:
    struck = case("agent-past-node-cap")
    assert [(turn.step, turn.status) for turn in struck.ledger.turns] == [
        ("1", 200),
        ("2~1", 200),
        ("2~2", 200),
        ("2~3", 200),
        ("2~4", 409),
        ("2", 409),
    ]
    assert len(struck.rollouts[0].samples) == 3


def test_what_is_asked_behind_a_delete_reaches_no_engine_and_behind_a_collect_no_sample() -> None:
    assert len(case("agent-asks-after-delete").ledger.generations) == 3
    late = case("agent-asks-after-collect")
    assert len(late.ledger.generations) == 4
    assert len(late.rollouts[0].samples) == 1


def test_the_weights_of_each_reply_are_told_in_order() -> None:
    (sample,) = case("engine-update-mid-reply").rollouts[0].samples
    assert list(dict.fromkeys(sample.weight_versions)) == ["default", "updated"]


@pytest.mark.parametrize(
    "name", ["agent-asks-twice", "agent-floods", "consumer-hangs-up-during", "engine-update-mid-reply"]
)
def test_a_play_again_gives_the_same(name: str) -> None:
    one, other = case(name), case(name)
    assert one.ledger == other.ledger
    assert [bare(rollout.samples) for rollout in one.rollouts] == [bare(rollout.samples) for rollout in other.rollouts]


ONE_QUESTION = {
    "name": "one-question",
    "title": "One question under two faults",
    "sessions": ("v2",),
    "rollouts": ({"index": 0},),
    "plan": {"steps": ({"do": "say", "key": "1", "words": 3},), "retries": 1},
}


def under(*faults: dict[str, Any], session: Any = "v2") -> Case:
    return played(Scenario.model_validate({**ONE_QUESTION, "sessions": (session,), "faults": faults}), session)


def broken(found: Case) -> list[str]:
    rules = [rule for rule in load_pack() if rule.id != "faults/fired"]
    return [judgement.rule.id for judgement in judge(found, rules) if judgement.violations]


def test_what_a_copy_was_answered_before_its_agent_left_is_told_as_lost() -> None:
    found = under(
        {"kind": "session-chat-twice", "where": {"step": "1"}},
        {"kind": "consumer-hangs-up-before", "where": {"step": "1", "attempt": 1}},
    )
    twice = found.ledger.fired[0]
    assert len(twice.lost) == 1
    assert {*twice.lost} <= {generation.id for generation in found.ledger.generations}
    assert broken(found) == []


LATE = {"kind": "agent-asks-after-collect", "where": {"step": "1"}}
REJECTED = [
    "payload-choices-empty",
    "http-503",
    *(name for name, kind in kinds().items() if (kind.edge, kind.verdict) == ("session", "reject")),
]


@pytest.mark.parametrize("session", ["v1", "v2"])
@pytest.mark.parametrize("kind", REJECTED)
def test_a_fault_that_strikes_a_question_asked_when_all_is_over_need_not_be_noticed(kind: str, session: Any) -> None:
    found = under(LATE, {"kind": kind, "where": {"step": "1", "attempt": 1}}, session=session)
    assert [(fired.kind, fired.attempt) for fired in found.ledger.fired] == [(LATE["kind"], 0), (kind, 1)]
    assert broken(found) == []


def test_one_rollout_of_two_is_struck_when_all_is_over() -> None:
    """What a campaign found."""
    step = {"do": "say", "key": "1.1.1", "words": 7}
    found = played(
        Scenario.model_validate(
            {
                "name": "campaign-2732",
                "title": "A subagent's question is refused when all is over",
                "seed": 255487899,
                "sessions": ("v2",),
                "rollouts": ({"index": 0}, {"index": 2}),
                "plan": {"steps": ({"do": "subagent", "key": "1.1", "returns": True, "steps": (step,)},)},
                "faults": (
                    {"kind": "agent-asks-after-collect", "when": {"first": 2}},
                    {"kind": "session-chat-422", "where": {"rollout": 1, "step": "1.1.1", "attempt": 1}},
                ),
            }
        )
    )
    assert [fired.rollout for fired in found.ledger.fired] == [0, 1, 1]
    assert broken(found) == []


def again(m: pytest.MonkeyPatch, owner: Any, name: str, status: Callable[[Any], int]) -> None:
    """Who sends by that method asks again what was refused, and tells nobody."""
    send = getattr(owner, name)

    async def sent(*args: Any) -> Any:
        answer = await send(*args)
        return answer if status(answer) == 200 else await send(*args)

    m.setattr(owner, name, sent)


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize(
    ("kind", "owner", "name", "status"),
    [
        ("session-chat-422", Exchange, "once", attrgetter("status")),
        ("http-503", SessionServer, "_send", attrgetter("status_code")),
    ],
)
def test_a_fault_that_strikes_what_somebody_waits_for_is_noticed_whatever_is_asked_when_all_is_over(
    kind: str, owner: Any, name: str, status: Any, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    again(monkeypatch, owner, name, status)
    found = under(*[LATE] * late, {"kind": kind, "where": {"step": "1", "attempt": 0}})
    assert [turn.status for turn in found.ledger.turns] == [200]
    assert found.ledger.fired[-1].kind == kind
    assert broken(found) == ["faults/verdict-as-declared"]
