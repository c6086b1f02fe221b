"""JSON Schemas of every document that leaves this package, all made from the models themselves."""

import json
from typing import Any

from pydantic import BaseModel

from miles_sim.ledger import Ledger
from miles_sim.scenarios.model import Scenario
from miles_sim.targets.observation import Observation
from miles_sim.verify.baseline import Baseline
from miles_sim.verify.bisect import Bisection
from miles_sim.verify.compare import Comparison
from miles_sim.verify.digest import Digest, History
from miles_sim.verify.doctor import Diagnosis
from miles_sim.verify.report import Report

MODELS: dict[str, type[BaseModel]] = {
    "baseline": Baseline,
    "bisection": Bisection,
    "comparison": Comparison,
    "diagnosis": Diagnosis,
    "digest": Digest,
    "history": History,
    "ledger": Ledger,
    "observation": Observation,
    "report": Report,
    "scenario": Scenario,
}
"""Document name to its model."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of one document kind."""
    if name not in MODELS:
        raise KeyError(f"schema: {name!r} is none of {sorted(MODELS)}")
    return {"$schema": DIALECT, **MODELS[name].model_json_schema(by_alias=True)}


def text(name: str) -> str:
    """The schema as it is committed: sorted, indented, one final newline."""
    return json.dumps(schema(name), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
