"""The rollout benchmark: each rollout has five generations and two leaves, on both sides."""

import json
import os

import pytest
from typer.testing import CliRunner

from miles_sim.bench.beside import Miles
from miles_sim.bench.cli import app
from miles_sim.bench.rollout import measure


def test_it_plays_whole_rollouts_and_says_null_for_miles() -> None:
    result = CliRunner().invoke(app, ["rollout", "--json", "--seconds", "0.01"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.output)
    assert list(figures) == ["rollouts_per_second", "ratio_miles"]
    assert figures["rollouts_per_second"] > 0
    assert figures["ratio_miles"] is None


@pytest.mark.miles
@pytest.mark.skipif("MILES_SIM_MILES_PYTHON" not in os.environ, reason="MILES_SIM_MILES_PYTHON names no interpreter")
def test_a_release_without_tree_sessions_is_not_measured_and_one_with_them_is() -> None:
    checkout = os.environ.get("MILES_SIM_MILES_CHECKOUT")
    found = measure(seconds=0.1, miles=Miles(os.environ["MILES_SIM_MILES_PYTHON"], checkout))
    assert (found.ratio_miles is not None) == (checkout is not None)
