"""The merge benchmark: what it measures is the same on both sides, and its figures are those promised."""

import json
import os
import sys
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from miles_sim.bench import merge
from miles_sim.bench.beside import Miles
from miles_sim.bench.cli import app
from miles_sim.bench.merge import MergeBench, Point, growth, measure
from miles_sim.bench.miles_side import turn_fields

KEYS = ["points", "growth_per_doubling", "ratio_miles"]


def test_it_measures_each_number_of_turns_and_says_null_for_miles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "TURNS", (2, 4, 8))
    result = CliRunner().invoke(app, ["merge", "--json", "--seconds", "0.01"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.output)
    assert list(figures) == KEYS
    assert [(point["turns"], point["tokens"]) for point in figures["points"]] == [(2, 400), (4, 800), (8, 1600)]
    assert all(point["seconds"] > 0 for point in figures["points"])
    assert figures["ratio_miles"] is None


def test_the_points_reach_what_is_promised() -> None:
    assert (merge.TURNS[0], merge.TURNS[-1]) == (8, 1024)
    assert merge.COMPARED in merge.TURNS
    assert sum(len(fields["tokens"]) for fields in turn_fields(merge.COMPARED)[-1:]) == 51_200


@pytest.mark.parametrize("factor", [2.0, 4.0])
def test_growth_is_the_factor_of_a_doubling(factor: float) -> None:
    points = [Point(2**n, 0, 0.001 * factor**n) for n in range(5)]
    assert growth(points) == pytest.approx(factor)


def test_each_turn_begins_with_the_one_before() -> None:
    turns = turn_fields(3)
    for before, turn in pairwise(turns):
        assert turn["tokens"][: len(before["tokens"])] == before["tokens"]


def test_an_interpreter_without_miles_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "TURNS", (2,))
    result = CliRunner().invoke(app, ["merge", "--seconds", "0.001", "--miles-python", sys.executable])
    assert result.exit_code == 2
    assert "No module named 'miles'" in result.output


def test_without_json_each_point_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "TURNS", (2, 4))
    lines = CliRunner().invoke(app, ["merge", "--seconds", "0.001"]).output.splitlines()
    assert [line.split()[:3] for line in lines[:2]] == [["points", "turns", "2"], ["points", "turns", "4"]]
    assert lines[-1].split() == ["ratio_miles", "not", "measured"]


def test_the_figures_are_these() -> None:
    assert list(MergeBench([], 2.0).document()) == KEYS


@pytest.mark.miles
@pytest.mark.skipif("MILES_SIM_MILES_PYTHON" not in os.environ, reason="MILES_SIM_MILES_PYTHON names no interpreter")
def test_a_real_miles_merges_the_same_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "TURNS", (2, 4))
    monkeypatch.setattr(merge, "COMPARED", 4)
    miles = Miles(os.environ["MILES_SIM_MILES_PYTHON"], os.environ.get("MILES_SIM_MILES_CHECKOUT"))
    found = measure(seconds=0.05, miles=miles)
    assert found.ratio_miles is not None
    assert found.ratio_miles > 0
