"""Spoiled conversations: what is changed, what stays, and where there is nothing to spoil."""

import json
from random import Random
from typing import Any

import pytest

from miles_sim.agent.hook import RETURN, Deed, Doing
from miles_sim.faults.catalogue import kind_named, kinds
from miles_sim.faults.strike import CannotStrike

CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a", "line": 3}'}}
HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Be careful."},
    {"role": "user", "content": "Fix it [1]"},
    {"role": "assistant", "content": " Yes.\n", "reasoning_content": "hm", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "def f(): … [2]"},
    {"role": "assistant", "content": "Done"},
]
OWN = {"role": "user", "content": "And now? [3]"}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "def f(): … [2]"}
EDITS = sorted(name for name, kind in kinds().items() if kind.effect.__module__.endswith("history"))


def strike(name: str, doing: Doing, **params: Any) -> Deed:
    kind = kind_named(name)
    deed: Deed = kind.effect(kind.params.model_validate(params), doing, Random(0))
    return deed


def asking(history: list[dict[str, Any]], own: dict[str, Any] = OWN, **options: Any) -> Doing:
    return Doing("3", (*history, own), 1, options)


def edited(name: str, history: list[dict[str, Any]] = HISTORY, **params: Any) -> list[dict[str, Any]]:
    """The history that a kind makes; what the step asks is as it was."""
    deed = strike(name, asking(history), **params)
    assert deed.messages is not None
    assert deed.messages[-1] == OWN
    return list(deed.messages[:-1])


def arguments(messages: list[dict[str, Any]]) -> Any:
    return messages[2]["tool_calls"][0]["function"]["arguments"]


def test_thoughts_are_left_out_and_nothing_else() -> None:
    assert edited("agent-strips-reasoning") == [
        {name: value for name, value in message.items() if name != "reasoning_content"} for message in HISTORY
    ]


def test_arguments_say_the_same_in_another_order_or_spelling() -> None:
    assert arguments(edited("agent-reorders-arguments")) == '{"line": 3, "path": "a"}'
    assert arguments(edited("agent-respells-arguments")) == '{"path":"a","line":3}'
    assert arguments(edited("agent-respells-arguments", form="object")) == {"path": "a", "line": 3}
    assert json.loads(arguments(edited("agent-respells-arguments", form="spaced"))) == {"path": "a", "line": 3}


def test_arguments_that_are_no_object_stay_as_they_are() -> None:
    call = {**CALL, "function": {"name": "read", "arguments": '{"path": '}}
    history = [*HISTORY[:2], {"role": "assistant", "content": None, "tool_calls": [call, CALL]}]
    spelled = edited("agent-respells-arguments", history)[2]["tool_calls"]
    assert (spelled[0], spelled[1]["function"]["arguments"]) == (call, '{"path":"a","line":3}')


def test_white_space_goes_or_comes() -> None:
    assert edited("agent-trims")[2]["content"] == "Yes."
    changed = [n for n, (old, new) in enumerate(zip(HISTORY, edited("agent-pads"), strict=True)) if old != new]
    assert len(changed) == 1
    assert changed[0] > 0


@pytest.mark.parametrize(("role", "place"), [("user", 1), ("tool", 3), ("system", 0)])
def test_a_message_of_the_role_that_is_named_is_edited_dropped_or_doubled(role: str, place: int) -> None:
    assert edited("agent-edits-message", role=role)[place]["content"] == f"(edited) {HISTORY[place]['content']}"
    assert edited("agent-drops-message", role=role) == [*HISTORY[:place], *HISTORY[place + 1 :]]
    assert edited("agent-duplicates-message", role=role) == [*HISTORY[: place + 1], *HISTORY[place:]]


def test_two_neighbours_change_places_but_never_the_system() -> None:
    swapped = edited("agent-swaps-messages")
    assert swapped[0] == HISTORY[0]
    assert swapped != HISTORY
    assert sorted(map(str, swapped)) == sorted(map(str, HISTORY))


def test_messages_come_in_where_the_history_ends_or_begins() -> None:
    assert edited("agent-adds-system") == [*HISTORY, {"role": "system", "content": "Be brief."}]
    assert edited("agent-adds-empty") == [*HISTORY, {"role": "user", "content": ""}]
    renewed = {"role": "system", "content": "The date has changed."}
    assert edited("agent-replaces-system") == [renewed, *HISTORY[1:]]
    assert edited("agent-replaces-system", HISTORY[1:]) == [renewed, *HISTORY[1:]]


def test_tools_are_left_out_where_there_are_any() -> None:
    assert strike("agent-drops-tools", asking(HISTORY, tools=[{}])).omitted == {"tools"}
    with pytest.raises(CannotStrike, match="no tools"):
        strike("agent-drops-tools", asking(HISTORY))


def test_a_call_is_left_unanswered_or_answered_under_another_id_and_the_tag_stays() -> None:
    history = HISTORY[:3]
    left = strike("agent-leaves-call", asking(history, RESULT))
    assert list(left.messages or ()) == [*history, {"role": "user", "content": RESULT["content"]}]
    wrong = strike("agent-wrong-call-id", asking(history, RESULT))
    assert list(wrong.messages or ()) == [*history, {**RESULT, "tool_call_id": "call_of_nobody"}]


@pytest.mark.parametrize("name", ["agent-leaves-call", "agent-wrong-call-id"])
def test_what_answers_no_call_cannot_answer_it_wrongly(name: str) -> None:
    with pytest.raises(CannotStrike, match="answers no tool call"):
        strike(name, asking(HISTORY))


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize(
    "doing",
    [
        Doing(RETURN),
        Doing("2", tuple(HISTORY[:2]), 0, {"tools": [{}]}),
        Doing("1", tuple(HISTORY[:2]), 1, {"tools": [{}]}),
    ],
    ids=["end", "asks again", "first"],
)
def test_without_a_history_there_is_nothing_to_spoil(name: str, doing: Doing) -> None:
    with pytest.raises(CannotStrike):
        strike(name, doing)


@pytest.mark.parametrize("name", ["strips-reasoning", "reorders-arguments", "respells-arguments", "trims"])
def test_a_history_with_nothing_of_the_kind_is_told(name: str) -> None:
    plain = [HISTORY[0], HISTORY[1], {"role": "assistant", "content": "Yes."}]
    with pytest.raises(CannotStrike, match="nothing of the kind"):
        strike(f"agent-{name}", asking(plain))


@pytest.mark.parametrize("name", EDITS)
def test_the_agents_own_messages_are_not_written_into(name: str) -> None:
    history = json.loads(json.dumps(HISTORY))
    own = RESULT if "call" in name else OWN
    strike(name, asking(history, own, tools=[{}]))
    assert history == HISTORY
