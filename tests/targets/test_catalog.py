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
    assert target.in_process


@pytest.mark.parametrize("options", [{"optimize": True}, {"python": "/usr/bin/python3"}])
def test_an_interpreter_or_its_option_puts_the_target_apart(options):
    target = open_target("reference", **options)
    assert isinstance(target, RemoteTarget)
    assert not getattr(target, "in_process", False)
    assert command(target)[0] == options.get("python", sys.executable)
    assert ("-O" in command(target)) is options.get("optimize", False)


async def test_the_reference_under_optimize_runs_without_assertions():
    target = open_target("reference", optimize=True)
    try:
        info = await target.describe()
    finally:
        await target.close()
    assert (info["name"], info["optimize"]) == ("reference", 1)


def test_miles_runs_apart_and_its_checkout_comes_first(tmp_path):
    target = open_target("miles", python="/opt/python", checkout=tmp_path)
    assert command(target)[0] == "/opt/python"
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


def test_names_are_all_that_can_be_opened_by_name():
    assert set(catalog.NAMES) == {"reference", "miles"}
    assert Path(catalog._MILES).is_file()
