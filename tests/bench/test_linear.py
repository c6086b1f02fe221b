"""The benchmark of lengths: every point is measured, and growth is the factor of a doubling."""

import json

import pytest
from typer.testing import CliRunner

from miles_sim.bench import linear
from miles_sim.bench.cli import app
from miles_sim.bench.growth import per_doubling


def test_it_measures_prompts_and_replies_of_all_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "PROMPTS", (20, 40))
    monkeypatch.setattr(linear, "REPLIES", (8, 16, 32))
    result = CliRunner().invoke(app, ["linear", "--json", "--rounds", "1"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.output)
    assert list(figures) == ["prompt", "prompt_growth", "reply", "reply_growth"]
    assert [point["tokens"] for point in figures["prompt"]] == [20, 40]
    assert [point["tokens"] for point in figures["reply"]] == [8, 16, 32]
    assert all(point["microseconds"] > 0 for point in figures["prompt"] + figures["reply"])


def test_the_lengths_are_those_promised() -> None:
    assert linear.PROMPTS == (1_000, 2_000, 4_000, 8_000)
    assert linear.REPLIES == (256, 512, 1_024, 2_048)


def test_a_request_has_the_length_that_its_point_tells() -> None:
    engine = linear._engine()
    linear._seconds(engine, [linear._body(3, 40, 33)])
    (generation,) = engine.generations
    assert (len(generation.prompt_ids), len(generation.output_ids)) == (40, 33)


@pytest.mark.parametrize("factor", [2.0, 4.0])
def test_growth_is_the_factor_of_a_doubling(factor: float) -> None:
    assert per_doubling([2**n for n in range(5)], [0.001 * factor**n for n in range(5)]) == pytest.approx(factor)


def test_no_request_is_asked_twice() -> None:
    bodies = {linear._body(number, 20, 5) for number in range(2_000)}
    assert len(bodies) == 2_000


def test_however_long_it_measures_each_request_is_taken() -> None:
    engine = linear._engine()
    linear._seconds(engine, [linear._body(10**7, 40, 33)])
    assert len(engine.generations) == 1
