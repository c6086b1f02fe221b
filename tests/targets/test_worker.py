"""Errors on their way between two processes."""

import asyncio
import json
import math

import pytest

from miles_sim.targets.worker import error_document, load, read_value, rebuilt, spelled


class PlanError(LookupError):
    """One that the other side cannot know."""


@pytest.mark.parametrize(
    "error", [PlanError("gone"), ValueError("no"), KeyError("key"), OSError(2, "missing"), AssertionError()]
)
def test_an_error_comes_back_with_its_name_message_and_built_in_base(error):
    there = error_document(error)
    back = rebuilt(there)
    assert (type(back).__name__, str(back)) == (type(error).__name__, str(error))
    base = next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
    assert isinstance(back, base)


def test_an_error_that_wants_more_arguments_is_rebuilt_too():
    there = error_document(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"))
    assert str(rebuilt(there)).endswith("bad")


def test_an_error_that_would_end_the_process_comes_back_as_an_ordinary_one():
    back = rebuilt({"type": "SystemExit", "bases": ["BaseException"], "message": "1"})
    assert isinstance(back, Exception)


def test_a_factory_is_found_by_module_and_name():
    assert load(None, "builtins:dict") == {}


@pytest.mark.parametrize("value", [None, {"reward": 1.0, "tags": ["a"]}, {1: 0.5}, {"x": (1, 2)}, [None]])
def test_what_an_agent_returns_arrives_as_it_is(value):
    answer = json.loads(json.dumps(spelled(value)))
    assert read_value(answer) == value
    assert type(read_value(answer)) is type(value)


def test_what_json_can_carry_is_readable_on_the_way():
    assert spelled({"reward": 1.0}) == {"value": {"reward": 1.0}}


def test_what_json_cannot_carry_arrives_too():
    back = read_value(spelled({"reward": math.nan, "sandbox": object()}))
    assert math.isnan(back["reward"])
    assert type(back["sandbox"]) is object


def test_a_cancellation_of_the_agents_own_comes_back_as_one():
    assert isinstance(rebuilt(error_document(asyncio.CancelledError())), asyncio.CancelledError)
