"""What is said where a target cannot be used, and what to do about it."""

import sys
from pathlib import Path

import pytest

from miles_sim.targets.advice import on_start
from miles_sim.targets.base import TargetError
from miles_sim.targets.remote import RemoteTarget


def error(message, kind="ModuleNotFoundError"):
    return {"type": kind, "bases": ["ImportError"], "message": message}


def told(message, kind="ModuleNotFoundError", checkout=None):
    return on_start(error(message, kind), "/venv/python", checkout)


def test_an_interpreter_without_miles_is_told_where_it_may_be():
    assert told("No module named 'miles'").lines == (
        "/venv/python has no miles: name by --python the interpreter of the environment that has it, or by "
        "--checkout a source tree",
    )


@pytest.mark.parametrize(("checkout", "where"), [("/tree", "the checkout /tree"), (None, "the miles of /venv/python")])
def test_a_part_of_miles_that_is_absent_is_no_package_to_install(checkout, where):
    advice = told("No module named 'miles.rollout.base_types'", checkout=checkout)
    assert advice.install == ()
    assert advice.lines[0].startswith(where)


def test_absent_modules_become_one_command_under_the_names_of_their_distributions():
    advice = told("No module named 'ray', 'zmq', 'PIL', 'sglang'")
    assert advice.install == (
        "/venv/python -m pip install pillow pyzmq ray",
        "/venv/python -m pip install --no-deps sglang",
    )
    assert advice.lines == tuple(f"install what is missing: {command}" for command in advice.install)


@pytest.mark.parametrize(
    ("kind", "message", "place"),
    [
        ("ModuleNotFoundError", "No module named 'sglang.srt.shiny'", "sglang.srt.shiny"),
        ("ImportError", "cannot import name 'Shiny' from 'sglang.srt' (/x.py)", "sglang.srt.Shiny"),
    ],
)
def test_a_package_of_another_version_is_named_with_the_place_that_shows_it(kind, message, place):
    (line,) = told(message, kind).lines
    assert line.startswith(f"the sglang of /venv/python does not fit this miles (see {place})")


def test_a_name_that_miles_lacks_within_itself_is_no_fault_of_a_package():
    (line,) = told("cannot import name 'Sample' from 'miles.utils.types' (/x.py)", "ImportError").lines
    assert line == "this miles does not fit together: miles.utils.types has no Sample; is it half checked out?"


def test_any_other_error_speaks_for_itself():
    assert told("boom", "RuntimeError").lines == ()


async def test_an_adapter_that_cannot_be_imported_says_what_to_install(tmp_path):
    adapter = tmp_path / "broken.py"
    adapter.write_text("import there_is_no_such_module\n")
    with pytest.raises(
        TargetError, match=r"\n  install what is missing: .* -m pip install there-is-no-such-mod"
    ) as caught:
        await RemoteTarget(sys.executable, adapter=adapter).describe()
    assert caught.value.install == (f"{sys.executable} -m pip install there-is-no-such-module",)


async def test_what_is_no_python_is_asked_about():
    with pytest.raises(TargetError, match=r"start: died\n  is /bin/false a Python 3\.10 or later\?"):
        await RemoteTarget("/bin/false", adapter=Path(__file__)).describe()
