"""Hooks as scenarios name them do what their names say, to samples of anyone's."""

from types import SimpleNamespace
from typing import Any, get_args

import pytest

from miles_sim.scenarios.model import Picker, Postprocessor
from miles_sim.targets.hooks import HookFailure, picker, postprocessor


def samples() -> list[Any]:
    return [SimpleNamespace(metadata={"leaf": {"node_id": node}}) for node in (4, 1, 3)]


def nodes(found: list[Any]) -> list[int]:
    return [sample.metadata["leaf"]["node_id"] for sample in found]


@pytest.mark.parametrize(("name", "kept"), [("all", [4, 1, 3]), ("earliest", [1]), ("latest", [4]), ("none", [])])
def test_a_sound_picker_keeps_what_its_name_says(name: str, kept: list[int]) -> None:
    given = samples()
    found = picker(name)(given, {})
    assert nodes(found) == kept
    assert all(any(sample is one for one in given) for sample in found)


def test_pickers_that_are_not_sound() -> None:
    given = samples()
    assert not any(one is other for one in picker("foreign")(given, {}) for other in given)
    assert nodes(picker("duplicate")(given, {})) == [4, 4, 1, 3]
    assert picker("nothing")(given, {}) is None
    with pytest.raises(HookFailure):
        picker("raises")(given, {})


def test_marks_go_on_top_of_the_default() -> None:
    found = postprocessor("marks", lambda samples, metadata: samples[:2])(samples(), {})
    assert [sample.metadata["marked"] for sample in found] == [True, True]


def test_every_name_of_a_scenario_has_a_function() -> None:
    default = lambda samples, metadata: samples  # noqa: E731 - stands for the target's own
    assert all(callable(picker(name)) for name in get_args(Picker) if name != "default")
    assert all(callable(postprocessor(name, default)) for name in get_args(Postprocessor))
    assert postprocessor("default", default) is default
