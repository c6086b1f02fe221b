"""`miles-sim faults`, and `run --faults-out`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from miles_sim.cli import app

KEYS = {
    "name",
    "layer",
    "edge",
    "at",
    "statement",
    "verdict",
    "under",
    "reason",
    "counters",
    "radius",
    "copies",
    "takes_all",
    "scenario",
    "params",
}


def invoke(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_list_has_every_kind_with_its_verdict_and_reason() -> None:
    found = json.loads(invoke("faults", "--json"))
    assert len(found) >= 70
    assert all(kind.keys() == KEYS for kind in found)
    assert {kind["verdict"] for kind in found} == {"tolerate", "reject", "degrade"}
    assert all(kind["reason"] and kind["scenario"] for kind in found)
    assert {kind["name"] for kind in found if kind["copies"] > 1} >= {"session-chat-twice", "consumer-two-collects"}


def test_a_layer_is_listed_by_itself() -> None:
    lines = invoke("faults", "--layer", "transport").splitlines()
    assert lines
    assert all(line.startswith("transport-") for line in lines)


def test_one_kind_is_shown_in_full_with_its_parameters() -> None:
    text = invoke("faults", "transport-cut-byte")
    assert "param" in text
    assert "bytes:" in text
    assert json.loads(invoke("faults", "transport-cut-byte", "--json"))["params"]["bytes"]["default"] == 20


@pytest.mark.parametrize(
    ("words", "told"),
    [(("http-5O3",), "'http-5O3' is not one of the"), (("--layer", "air"), "layer: 'air' is not one of")],
)
def test_what_is_not_there_is_refused_by_name(words: tuple[str, ...], told: str) -> None:
    result = CliRunner().invoke(app, ["faults", *words])
    assert result.exit_code == 2
    assert told in result.output


def test_what_fired_is_shown_and_replayed_to_the_same_bytes(tmp_path: Path) -> None:
    drawn = tmp_path / "drawn.yaml"
    drawn.write_text(
        """
name: drawn
title: A draw decides
sessions: [v2]
rollouts: [{index: 0}, {index: 1}, {index: 2}, {index: 3}]
plan: {retries: 3, steps: [{do: say}, {do: say}, {do: say}]}
faults:
  - {kind: http-503, params: {delivered: true}, when: {probability: 0.3}}
  - {kind: consumer-timeout, where: {step: "2"}, when: {probability: 0.4}}
"""
    )
    again, third = tmp_path / "again.yaml", tmp_path / "third.yaml"
    first = json.loads(invoke("run", str(drawn), "--json", "--faults-out", str(again)))
    second = json.loads(invoke("run", str(again), "--json", "--faults-out", str(third)))
    assert first["ledger"]["fired"]
    assert first["observation"] == second["observation"]
    assert first["ledger"]["generations"] == second["ledger"]["generations"]
    assert again.read_bytes() == third.read_bytes()
    text = invoke("run", str(again))
    assert text.count("\nfired") == len(first["ledger"]["fired"])


def test_a_scenario_is_written_for_each_kind_alone(tmp_path: Path) -> None:
    invoke("faults", "--write", str(tmp_path), "--session", "v1")
    names = {kind["name"] for kind in json.loads(invoke("faults", "--json"))}
    assert {file.stem for file in tmp_path.glob("*.yaml")} == {f"single-{name}"[:64] for name in names}


def test_a_page_has_a_column_for_each_target_that_was_asked(tmp_path: Path) -> None:
    scenarios, report, cells = tmp_path / "scenarios", tmp_path / "report.json", tmp_path / "cells"
    invoke("faults", "--write", str(scenarios), "--session", "v2")
    cells.mkdir()
    played = [str(scenarios / f"single-{name}.yaml") for name in ("http-503", "model-same-call-id")]
    CliRunner().invoke(app, ["verify", "--scenario", played[0], "--scenario", played[1], "--json", str(report)])
    (cells / "ours.json").write_text(invoke("faults", "--report", str(report)))
    assert json.loads((cells / "ours.json").read_text()) == {
        "http-503": "as declared",
        "model-same-call-id": "could not",
    }
    page = invoke("faults", "--page", str(cells), "--layer", "http")
    assert "| kind | what happens | verdict | why | ours |" in page
    assert next(line for line in page.splitlines() if "`http-503`" in line).endswith("| as declared |")
