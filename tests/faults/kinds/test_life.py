"""What the model is made to say, and what befalls its engine."""

from typing import Any, get_args

import pytest

from miles_sim.faults.catalogue import kind_named, kinds
from miles_sim.faults.strike import CannotStrike
from miles_sim.reply import Misbehaviour, Reply, ToolCall, WeightUpdate

CALL = ToolCall(name="read", arguments={"path": "a"})
REPLIES = sorted(name for name, kind in kinds().items() if kind.edge == "model")


def spoil(name: str, reply: Reply, **params: Any) -> Reply:
    kind = kind_named(name)
    spoiled: Reply = kind.effect(kind.params.model_validate(params), reply)
    return spoiled


def test_each_way_to_misbehave_is_a_kind() -> None:
    reply = Reply(tokens=9, tool_calls=(CALL, CALL))
    for how in get_args(Misbehaviour):
        spoiled = spoil(f"model-{how.replace('_', '-')}", reply)
        assert spoiled == reply.model_copy(update={"misbehave": how})


def test_an_end_that_does_not_come_is_said_in_other_words() -> None:
    assert spoil("model-over-long", Reply(text="Done."), tokens=900) == Reply(tokens=900)


def test_a_call_stands_behind_so_much_text_or_is_not_made() -> None:
    reply = Reply(text="I look.", tool_calls=(CALL,))
    assert spoil("model-cut-call", reply, tokens=40) == Reply(tokens=40, tool_calls=(CALL,))
    assert spoil("model-no-call", reply) == Reply(text="I look.")


@pytest.mark.parametrize(
    "name", ["model-cut-call", "model-no-call", "model-unknown-tool", "model-bad-json-open", "model-same-call-id"]
)
def test_what_spoils_a_call_needs_one(name: str) -> None:
    with pytest.raises(CannotStrike):
        spoil(name, Reply())


def test_what_befalls_a_request_stands_in_its_reply() -> None:
    assert spoil("engine-abort", Reply(), after=0).abort_after == 0
    assert spoil("engine-retract", Reply(), after=7).retract_after == 7
    update = spoil("engine-update-mid-reply", Reply(), after=7, version="8").update
    assert update == WeightUpdate(after=7, version="8")


@pytest.mark.parametrize("name", REPLIES)
def test_the_rest_of_a_reply_is_as_it_was_planned(name: str) -> None:
    reply = Reply(tokens=30, reasoning=5, tool_calls=(CALL, CALL))
    spoiled = spoil(name, reply)
    changed = {field for field in type(reply).model_fields if getattr(reply, field) != getattr(spoiled, field)}
    assert len(changed) == 1
    assert spoiled.reasoning == 5
