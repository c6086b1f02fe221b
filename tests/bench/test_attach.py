"""The attach benchmark: its tree and its request are what it says."""

import json

from typer.testing import CliRunner

from miles_sim.bench.attach import AttachBench, planted
from miles_sim.bench.cli import app
from miles_sim.bench.miles_side import attach_request
from miles_sim.rollout.session.chat import ChatRequest


def test_it_measures_trees_from_16_to_1024_nodes() -> None:
    result = CliRunner().invoke(app, ["attach", "--json", "--seconds", "0.001"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.output)
    assert list(figures) == ["points", "ratio_1024_16", "miles_points"]
    assert [point["nodes"] for point in figures["points"]] == [16, 32, 64, 128, 256, 512, 1024]
    assert all(point["microseconds"] > 0 for point in figures["points"])
    assert figures["miles_points"] is None


def test_the_request_stands_behind_the_node_in_the_middle() -> None:
    tree = planted(16)
    asked = ChatRequest(messages=attach_request(16), tools=None, template_options={}, stream=False, fields={})
    position = tree.position(asked, requested_at=0.0)
    assert position.base is not None
    assert (len(tree.commits()), position.base.seq, position.base.parent) == (16, 8, 0)


def test_the_figures_are_these() -> None:
    assert list(AttachBench([], 1.0).document()) == ["points", "ratio_1024_16", "miles_points"]
