"""JSON Schemas of every document that leaves this package, all made from the models or profiles themselves."""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import BaseModel

from miles_sim.engine import profiles
from miles_sim.ledger import Ledger
from miles_sim.scenarios.model import Scenario
from miles_sim.targets.observation import Observation
from miles_sim.verify.baseline import Baseline
from miles_sim.verify.bisect import Bisection
from miles_sim.verify.compare import Comparison
from miles_sim.verify.digest import Digest, History
from miles_sim.verify.doctor import Diagnosis
from miles_sim.verify.engine_schemas import profile_schema
from miles_sim.verify.open_rows import OpenRows
from miles_sim.verify.payload import SamplesWire
from miles_sim.verify.report import Report
from miles_sim.verify.session_routes import SessionRoutes

MODELS: dict[str, tuple[type[BaseModel], int]] = {
    "baseline": (Baseline, 2),
    "bisection": (Bisection, 1),
    "comparison": (Comparison, 1),
    "diagnosis": (Diagnosis, 1),
    "digest": (Digest, 1),
    "history": (History, 1),
    "ledger": (Ledger, 2),
    "observation": (Observation, 2),
    "open-rows": (OpenRows, 1),
    "report": (Report, 3),
    "samples-wire": (SamplesWire, 1),
    "scenario": (Scenario, 3),
    "session-routes": (SessionRoutes, 1),
}
"""Document name to its model and its version. A document whose shape changes moves on by one."""

ENGINE_VERSION = 1
"""Of the documents `engine-<profile>`, the engine's answers under each release's profile."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_WORDS = ("description", "title", "examples")
"""Keywords that say nothing of the shape."""


def names() -> tuple[str, ...]:
    """All documents."""
    return tuple(sorted([*MODELS, *(f"engine-{profile}" for profile in profiles.names())]))


def version(name: str) -> int:
    """The version of one document kind."""
    return MODELS[name][1] if name in MODELS else ENGINE_VERSION


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of one document kind; KeyError for one that there is not."""
    return {"$schema": DIALECT, "$id": f"miles-sim/{name}/{version(name)}", **_maker(name)()}


def text(name: str) -> str:
    """The schema as it is committed: sorted, indented, one final newline."""
    return json.dumps(schema(name), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def entry(name: str) -> str:
    """One line for `contracts/schemas/versions.txt`: document, version, digest of the shape, words left out."""
    shape = json.dumps(_shape(schema(name)), sort_keys=True).encode()
    return f"{name}/{version(name)} {hashlib.blake2b(shape, digest_size=12).hexdigest()}"


def _maker(name: str) -> Callable[[], dict[str, Any]]:
    if name in MODELS:
        return partial(MODELS[name][0].model_json_schema, by_alias=True)
    profile = name.removeprefix("engine-")
    if profile == name or profile not in profiles.names():
        raise KeyError(f"schema: {name!r} is none of {', '.join(names())}")
    return partial(profile_schema, profile)


def _shape(value: Any, *, properties: bool = False) -> Any:
    """`value` without words; `properties`: its keys are names of fields, whatever they are called."""
    if isinstance(value, dict):
        kept = value if properties else {k: v for k, v in value.items() if k not in _WORDS}
        return {k: _shape(v, properties=not properties and k in ("properties", "$defs")) for k, v in kept.items()}
    if isinstance(value, list):
        return [_shape(item) for item in value]
    return value
