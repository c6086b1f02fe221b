"""The engine's benchmark: figures from real processes, told as promised, and refusals that name what is wrong."""

import json
import sys

import orjson
import pytest
from typer.testing import CliRunner

from miles_sim.bench.cli import app
from miles_sim.bench.engine import EngineBench, requests
from miles_sim.bench.host import bytes_app
from miles_sim.bench.load import BenchError, fire, once, prepared
from miles_sim.transport import serve

KEYS = ["rps", "floor_rps", "ratio_floor", "mock_rps", "ratio_mock"]


def test_it_measures_the_engine_and_the_floor_and_says_null_for_what_it_has_not_measured() -> None:
    result = CliRunner().invoke(app, ["engine", "--json", "--seconds", "0.1", "--connections", "2"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.output)
    assert list(figures) == KEYS
    assert figures["rps"] > 0
    assert figures["ratio_floor"] == pytest.approx(figures["rps"] / figures["floor_rps"], abs=0.002)
    assert figures["mock_rps"] is None
    assert figures["ratio_mock"] is None


def test_an_interpreter_without_miles_is_named() -> None:
    result = CliRunner().invoke(app, ["engine", "--seconds", "0.1", "--miles-python", sys.executable])
    assert result.exit_code == 2
    assert "No module named 'miles'" in result.output


def test_the_figures_are_these() -> None:
    assert list(EngineBench(1.0, 2.0, 0.5).document()) == KEYS


def test_each_request_has_a_thousand_ids_that_its_messages_render_to() -> None:
    bodies = [orjson.loads(request.partition(b"\r\n\r\n")[2]) for request in requests(samples=1)]
    assert {len(body["input_ids"]) for body in bodies} == {1_000}
    assert len({tuple(body["input_ids"]) for body in bodies}) == len(bodies)


def test_each_prompt_is_asked_for_a_group_of_samples_in_a_row() -> None:
    asked, each = requests(samples=3), requests(samples=1)
    assert [asked[n::3] for n in range(3)] == [each] * 3
    assert len(requests()) == 8 * len(each)


async def test_a_load_counts_whole_answers_of_any_size() -> None:
    body = b"x" * 300_000
    async with serve(bytes_app(body)) as url:
        request = prepared("/v1/chat/completions", b"{}")
        assert await once(url, request) == body
        load = await fire(url, [request], connections=3, seconds=0.05)
    assert load.answers >= 3
    assert load.rps == load.answers / load.seconds


async def test_an_answer_other_than_200_is_no_figure() -> None:
    async with serve(bytes_app(b"")) as url:
        with pytest.raises(BenchError, match="404"):
            await fire(url, [prepared("/nope", b"{}")], connections=2, seconds=1)
