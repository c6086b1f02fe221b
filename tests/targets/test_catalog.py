"""Targets by name."""

import sys
from pathlib import Path

import pytest

from miles_sim.targets import catalog
from miles_sim.targets.catalog import UnknownTargetError, open_target
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.targets.remote import RemoteTarget
from miles_sim.transport import LocalNetwork


def command(target):
    return target._command


def test_the_reference_shares_this_process():
    target = open_target("reference", network=LocalNetwork())
    assert isinstance(target, ReferenceTarget)


@pytest.mark.parametrize("options", [{"optimize": True}, {"python": "/usr/bin/python3"}])
def test_an_interpreter_or_its_option_puts_the_target_apart(options):
    target = open_target("reference", **options)
    assert isinstance(target, RemoteTarget)
    assert command(target)[0] == options.get("python", sys.executable)
    assert ("-O" in command(target)) is options.get("optimize", False)


async def test_the_reference_under_optimize_runs_without_assertions():
    target = open_target("reference", optimize=True)
    try:
        info = await target.describe()
    finally:
        await target.close()
    assert (info["name"], info["optimize"]) == ("reference", 1)


FILES = [
    "utils/types.py",
    "utils/http_utils.py",
    "utils/processing_utils.py",
    "rollout/base_types.py",
    "rollout/generate_hub/agentic_tool_call.py",
    "rollout/session/server.py",
]


@pytest.fixture
def miles_tree(tmp_path):
    for name in FILES:
        file = tmp_path / "miles" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return tmp_path


def test_miles_runs_apart_and_its_checkout_comes_first_and_stays_as_it_is(miles_tree):
    target = open_target("miles", python="/opt/python", checkout=miles_tree)
    tmp_path = miles_tree
    assert command(target)[:2] == ["/opt/python", "-B"]
    assert command(target)[-2:] == ["--path", str(tmp_path)]
    assert "--adapter" in command(target)


def test_a_factory_is_called():
    assert isinstance(open_target("miles_sim.targets.reference:ReferenceTarget"), ReferenceTarget)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("milse", {}, "target: 'milse' is neither one of 'reference', 'miles' nor a 'pkg.mod:factory'"),
        ("there.is.none:such", {}, "target: 'there.is.none:such' cannot be imported: No module named 'there'"),
        ("json:nothing", {}, "target: 'json:nothing' cannot be imported: .* no attribute 'nothing'"),
        ("json:", {}, "target: 'json:' cannot be imported"),
        (":factory", {}, "target: ':factory' cannot be imported"),
        ("sys:maxsize", {}, "target: 'sys:maxsize' is a int, not a factory to call"),
        ("miles", {"checkout": "/no/such/folder"}, "checkout: '/no/such/folder' is no folder"),
        ("reference", {"checkout": "."}, "checkout: the target 'reference' has none"),
    ],
)
def test_what_cannot_be_opened_is_named(name, options, message):
    with pytest.raises(UnknownTargetError, match=message):
        open_target(name, **options)


def test_a_folder_that_is_no_miles_is_told(tmp_path):
    with pytest.raises(UnknownTargetError, match=r"is no miles: there is no folder miles in it$"):
        open_target("miles", checkout=tmp_path)


def test_the_package_in_place_of_its_tree_is_told(miles_tree):
    with pytest.raises(UnknownTargetError, match=f"it is the package itself, name {str(miles_tree)!r}"):
        open_target("miles", checkout=miles_tree / "miles")


@pytest.mark.parametrize("name", FILES)
def test_each_file_that_half_a_checkout_lacks_is_named(miles_tree, name):
    (miles_tree / "miles" / name).unlink()
    with pytest.raises(UnknownTargetError, match=f"not a whole miles: it lacks miles/{name}"):
        open_target("miles", checkout=miles_tree)


def test_names_are_all_that_can_be_opened_by_name():
    assert set(catalog.NAMES) == {"reference", "miles"}
    assert Path(catalog._MILES).is_file()
