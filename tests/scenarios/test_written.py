"""Scenarios written as YAML: read back the same, and as short as a person would write them."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from miles_sim.scenarios import library
from miles_sim.scenarios.eventful import eventful
from miles_sim.scenarios.model import Scenario
from miles_sim.scenarios.written import scenario_yaml


@settings(suppress_health_check=list(HealthCheck))
@given(eventful())
def test_a_scenario_is_read_back_the_same(tmp_path_factory: pytest.TempPathFactory, scenario: Scenario) -> None:
    file = tmp_path_factory.mktemp("written") / "drawn.yaml"
    file.write_text(scenario_yaml(scenario, comment="found\nby search"), encoding="utf-8")
    assert library.load_file(file) == scenario


@pytest.mark.parametrize("name", library.names())
def test_every_library_scenario_is_read_back_the_same(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.yaml"
    file.write_text(scenario_yaml(library.load(name)), encoding="utf-8")
    assert library.load_file(file) == library.load(name)


def test_what_is_as_by_default_is_left_out() -> None:
    scenario = Scenario.model_validate({"name": "least", "title": "Least", "plan": {"steps": [{"do": "say"}]}})
    assert scenario_yaml(scenario) == "name: least\ntitle: Least\nplan:\n  steps:\n  - {do: say}\n"
