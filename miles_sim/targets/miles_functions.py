"""Functions of ours where miles finds the user's by a dotted path. Standard library only."""

import importlib
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from . import hooks
from .base import AgentFunction, Job

MODULE = "miles_sim_agent"
"""Module that holds them while a play runs."""
PICKER = "miles.rollout.session.v2.picker_hub.drop_retries"
POSTPROCESSOR = "miles.rollout.session.v2.postprocessor_hub.default_postprocess"


class Rollouts:
    """Which rollout a task of the play is, and in which of them the agent function ran."""

    def __init__(self) -> None:
        self._number: ContextVar[int] = ContextVar("rollout")
        self.ran: set[int] = set()

    def enter(self, number: int) -> None:
        """This task, and what it starts, is rollout `number`."""
        self._number.set(number)

    @property
    def number(self) -> int:
        return self._number.get()

    @property
    def current(self) -> int | None:
        """As `number`; None where none was entered."""
        return self._number.get(None)


@contextmanager
def functions(job: Job, agent: AgentFunction, rollouts: Rollouts) -> Iterator[None]:
    """Agent function, tools and hooks of a play, in `MODULE`."""
    module = types.ModuleType(MODULE)
    vars(module).update(_agent(agent, rollouts), **_hooks(job))
    if "direct" in job:
        vars(module).update(_tools(job, agent, rollouts))
    sys.modules[MODULE] = module
    try:
        yield
    finally:
        del sys.modules[MODULE]


def paths(job: Job) -> dict[str, str]:
    """Setting of miles to the dotted path of the function it asks for; where miles' own is meant, that one's."""
    asked = job.get("hooks") or {"picker": "default", "postprocessor": "default"}
    return {
        "custom_agent_function_path": f"{MODULE}.run",
        "session_sample_picker_path": PICKER if asked["picker"] == "default" else f"{MODULE}.pick",
        "session_sample_postprocessor_path": (
            POSTPROCESSOR if asked["postprocessor"] == "default" else f"{MODULE}.postprocess"
        ),
        "generate_tool_specs_path": f"{MODULE}.tools",
        "generate_execute_tool_function_path": f"{MODULE}.execute",
    }


def _agent(agent: AgentFunction, rollouts: Rollouts) -> dict[str, Any]:
    async def run(base_url: str, prompt: Any, request_kwargs: Any, metadata: Any, **_: Any) -> Any:
        rollouts.ran.add(rollouts.number)
        return await agent(rollouts.number, base_url, request_kwargs, metadata)

    return {"run": run}


def _tools(job: Job, agent: AgentFunction, rollouts: Rollouts) -> dict[str, Any]:
    async def execute(name: str, arguments: Any) -> str:
        rollouts.ran.add(rollouts.number)
        answer = await agent(rollouts.number, "", {"name": name, "arguments": arguments}, {})
        content: str = (answer or {})["content"]
        return content

    return {"tools": job["direct"]["tools"], "execute": execute}


def _hooks(job: Job) -> dict[str, Callable[..., Any]]:
    asked = job.get("hooks")
    found: dict[str, Callable[..., Any]] = {}
    if asked is not None and asked["picker"] != "default":
        found["pick"] = hooks.picker(asked["picker"])
    if asked is not None and asked["postprocessor"] != "default":
        module, _, name = POSTPROCESSOR.rpartition(".")
        own = getattr(importlib.import_module(module), name)
        found["postprocess"] = hooks.postprocessor(asked["postprocessor"], own)
    return found
