"""The published JSON Schemas are the models', and what a run writes fits them."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from miles_sim.verify.run import Run
from miles_sim.verify.schemas import MODELS, schema, text

FOLDER = Path(__file__).parent / "schemas"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_published_schema_is_the_models(name: str) -> None:
    published = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert published == json.loads(text(name)), f"run: miles-sim schemas {name} > contracts/schemas/{name}.json"


def test_no_schema_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(MODELS)


def _valid(name: str, document: Any) -> None:
    validator = jsonschema.Draft202012Validator(schema(name))
    validator.check_schema(validator.schema)
    errors = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]
    assert errors == []


def test_every_document_of_a_run_fits_its_schema(run: Run) -> None:
    _valid("report", json.loads(run.report.to_json()))
    for case in run.cases.values():
        _valid("scenario", case.scenario.model_dump(mode="json"))
        _valid("ledger", case.ledger.model_dump(mode="json"))
        _valid("observation", case.observation.model_dump(mode="json", by_alias=True))
