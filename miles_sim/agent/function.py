"""The player as a miles agent function: `--custom-agent-function-path miles_sim.agent.function.run`.

The plan comes from the sample's metadata (`miles_sim_plan`: a plan as plain data; `miles_sim_seed`,
`miles_sim_rollout`: numbers, default 0), else from the scenario file that the environment variable
`MILES_SIM_SCENARIO` names. With `MILES_SIM_JOURNAL` set, each run appends its turns to that file, one JSON line a
request, in the form of `ledger.Turn`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import orjson

from miles_sim.agent.plan import Plan
from miles_sim.agent.player import play_plan
from miles_sim.document import DocumentError, read
from miles_sim.ledger import Turn
from miles_sim.yaml_file import YamlFile

SCENARIO = "MILES_SIM_SCENARIO"
JOURNAL = "MILES_SIM_JOURNAL"
TIMEOUT = 600.0
"""Seconds for one request."""


async def run(
    base_url: str,
    prompt: Any = None,
    request_kwargs: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> dict[str, Any] | None:
    """Plays the plan against `base_url` (a session, or any OpenAI server without its `/v1`).

    `prompt` is not read: the plan says what is said. Raises `DocumentError` without a usable plan, else what
    `play_plan` raises.
    """
    facts = metadata or {}
    plan, seed = find_plan(facts)
    journal: list[Turn] = []
    try:
        async with httpx.AsyncClient(timeout=TIMEOUT) as client:
            return await play_plan(
                plan,
                client=client,
                base_url=base_url,
                request_kwargs=request_kwargs or {},
                rollout=_number(facts, "miles_sim_rollout", 0),
                seed=seed,
                journal=journal,
            )
    finally:
        _write(journal)


def find_plan(metadata: Mapping[str, Any]) -> tuple[Plan, int]:
    """The plan to play, and the seed of its words."""
    if "miles_sim_plan" in metadata:
        plan = read(Plan, metadata["miles_sim_plan"], name="metadata.miles_sim_plan")
        return plan, _number(metadata, "miles_sim_seed", 0)
    path = os.environ.get(SCENARIO)
    if not path:
        raise DocumentError(f"no plan: neither metadata['miles_sim_plan'] nor the environment variable {SCENARIO}")
    file = YamlFile(path)
    document = file.data if isinstance(file.data, Mapping) else {}
    if "plan" not in document:
        raise DocumentError(f"{path}: plan: missing")
    plan = read(Plan, document["plan"], name=f"{path}: plan", line=lambda place: file.line(("plan", *place)))
    return plan, _number(metadata, "miles_sim_seed", document.get("seed", 0))


def _number(facts: Mapping[str, Any], name: str, default: Any) -> int:
    value = facts.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise DocumentError(f"{name}: {value!r} is not an integer from 0")
    return value


def _write(journal: list[Turn]) -> None:
    path = os.environ.get(JOURNAL)
    if path and journal:
        lines = b"".join(
            orjson.dumps(turn.model_dump(mode="json"), option=orjson.OPT_APPEND_NEWLINE) for turn in journal
        )
        with Path(path).open("ab") as file:
            file.write(lines)
