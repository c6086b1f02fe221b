"""The catalogue is whole: kinds enough, each with a scenario that shows it, and a page that is fresh."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from miles_sim.faults.catalogue import UnknownFaultError, kind_named, kinds
from miles_sim.faults.kind import kind
from miles_sim.report.fault_page import page
from miles_sim.scenarios import library
from miles_sim.scenarios.single import single

DOCS = Path(__file__).resolve().parents[2] / "docs"
LAYERS = {"transport", "http", "payload", "model", "engine", "agent", "session", "consumer"}


def test_there_are_kinds_of_every_layer() -> None:
    assert len(kinds()) >= 70
    assert {kind.layer for kind in kinds().values()} == LAYERS


@pytest.mark.parametrize("name", sorted(kinds()))
def test_a_scenario_of_the_library_shows_each_kind(name: str) -> None:
    kind = kinds()[name]
    assert name in {fault.kind for fault in library.load(kind.scenario).faults}


@pytest.mark.parametrize("name", sorted(kinds()))
def test_each_kind_has_a_place_in_a_scenario_of_its_own(name: str) -> None:
    scenario = single(kinds()[name])
    assert scenario.faults[0].kind == name
    assert ("direct" in scenario.sessions) == (kinds()[name].edge in ("engine", "model"))


@pytest.mark.parametrize("name", sorted(name for name, kind in kinds().items() if kind.edge in ("session", "driver")))
def test_a_kind_declares_how_often_it_delivers_a_request(name: str) -> None:
    kind = kinds()[name]
    strike = kind.effect(kind.params(), Random(0))
    assert kind.copies == max(1, strike.deliveries)


@pytest.mark.parametrize(("edge", "copies"), [("session", 0), ("engine", 2), ("model", 2)])
def test_copies_that_no_edge_delivers_are_refused(edge: Any, copies: int) -> None:
    """A request is delivered as often as somebody on its way makes it."""
    enter = kind("odd", layer="session", edge=edge, verdict="reject", reason="a test", copies=copies)
    with pytest.raises(
        ValueError, match=rf"kind 'odd': copies: {copies} is not 1, or more on agent or driver or session"
    ):
        enter(test_copies_that_no_edge_delivers_are_refused)
    assert "odd" not in kinds()


def test_what_must_be_tolerated_takes_nothing() -> None:
    enter = kind("odd", layer="session", edge="session", verdict="tolerate", reason="a test", takes_all=True)
    with pytest.raises(ValueError, match="kind 'odd': takes_all: what must be tolerated takes nothing"):
        enter(test_copies_that_no_edge_delivers_are_refused)
    assert "odd" not in kinds()


def test_an_unknown_kind_is_told_with_those_that_are_alike() -> None:
    with pytest.raises(UnknownFaultError, match=r"'http-530' is not one of the .*http-503"):
        kind_named("http-530")


def test_the_page_of_kinds_is_fresh() -> None:
    columns = [
        (file.stem, json.loads(file.read_bytes()))
        for file in sorted((DOCS / "faults").glob("*.json"), key=lambda file: (file.stem != "reference", file.stem))
    ]
    assert columns
    text = (DOCS / "fault-kinds.md").read_text(encoding="utf-8")
    assert text == page(kinds().values(), columns), "miles-sim faults --page docs/faults > docs/fault-kinds.md"


def test_our_own_implementation_does_as_declared_under_every_kind() -> None:
    told = json.loads((DOCS / "faults" / "reference.json").read_bytes())
    assert {kind: cell for kind, cell in told.items() if cell not in ("as declared", "could not")} == {}


def test_reading_a_scenario_without_faults_loads_no_kind() -> None:
    code = (
        "import sys; from miles_sim.scenarios import library; library.load('linear');"
        "print([m for m in sys.modules if m.startswith('miles_sim.faults.kinds')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
