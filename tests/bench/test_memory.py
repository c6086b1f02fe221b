"""The benchmark of memory: it looks as often as it says, and what is kept is bounded."""

import json

import pytest
from typer.testing import CliRunner

from miles_sim.bench import memory
from miles_sim.bench.cli import app
from miles_sim.engine.engine import Engine
from miles_sim.engine.flight import at_once


def test_it_looks_at_the_memory_after_each_twentieth_of_the_requests() -> None:
    result = CliRunner().invoke(app, ["memory", "--json", "--requests", "210"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.output)
    assert list(figures) == ["requests", "rss_mb", "growth_mb"]
    assert figures["requests"] == 210
    assert len(figures["rss_mb"]) == memory.SAMPLES
    assert all(rss > 1 for rss in figures["rss_mb"])


def test_each_request_is_another_question() -> None:
    engine = Engine(memory.BOUNDS, seed=0)
    for number in range(5):
        at_once(engine.chat(memory._body(number)))
    assert {generation.attempt for generation in engine.generations} == {0}
    assert len({generation.prompt_ids for generation in engine.generations}) == 5


@pytest.mark.parametrize(
    ("samples", "grown"), [([9, 9, 9, 9], 0.0), ([1, 5, 5, 5, 5, 5, 7, 7], 2.0), ([1, 2, 3, 4, 5, 6, 7, 8], 4.0)]
)
def test_growth_leaves_out_the_beginning(samples: list[float], grown: float) -> None:
    assert memory.growth(samples) == grown


def test_few_samples_tell_no_growth() -> None:
    assert memory.growth([1.0, 2.0, 3.0]) == 0.0
