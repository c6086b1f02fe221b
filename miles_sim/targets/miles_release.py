"""What the miles of this interpreter is and can do, found out by looking. Standard library and miles only."""

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
import types
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .base import CAPABILITIES, Job
from .missing import missing_modules

AGENT_MODULE = "miles_sim_agent"
"""Module that holds the agent function while a play runs; miles loads it by its dotted path."""
ENGINE_ACTOR = "miles.backends.sglang_utils.sglang_engine"
"""The trainer's modules import the actor that runs a GPU engine, and never touch it on the way from samples to data."""
_REPLACEABLE = ("sglang.srt.entrypoints.openai.encoding_dsv4",)
"""Modules of newer engines for single model families, none of them ours."""
_NEEDED = (
    "miles.utils.types",
    "miles.rollout.generate_hub.agentic_tool_call",
    "miles.rollout.session.server",
    "miles.rollout.session.session_server",
    "miles.ray.rollout",
)
_STANDS_ON = (
    "torch",
    "transformers",
    "sglang",
    "ray",
    "numpy",
    "httpx",
    "fastapi",
    "uvicorn",
    "pydantic",
    "safetensors",
)
"""Distributions whose versions decide what a miles does."""
_APPEND_ROLES = ["tool", "user", "system"]


@dataclass
class Release:
    """The parts of one miles release, and the reasons why others are not there."""

    version: str
    sample: Any
    generate: Any
    generate_input: Any
    session_server: Any
    load_tokenizer: Any
    http_utils: Any
    absent: dict[str, str] = field(default_factory=dict)
    stand_ins: list[str] = field(default_factory=list)

    @property
    def capabilities(self) -> list[str]:
        return [name for name in CAPABILITIES if name not in self.absent]

    def info(self) -> dict[str, Any]:
        return {
            "name": "miles",
            "version": self.version,
            "python": platform.python_version(),
            "optimize": sys.flags.optimize,
            "capabilities": self.capabilities,
            "absent": {name: self.absent[name] for name in CAPABILITIES if name in self.absent},
            "stand_ins": self.stand_ins,
        }

    def places(self) -> dict[str, Any]:
        """Where miles and its engine package lie, and the versions of what it stands on; None: not installed."""
        versions: dict[str, str | None] = {}
        for name in _STANDS_ON:
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                versions[name] = None
        where = {
            name: os.path.dirname(sys.modules[name].__file__ or "")
            for name in ("miles", "sglang")
            if name in sys.modules
        }
        return {"where": where, "packages": versions}

    def new_sample(self, values: dict[str, Any]) -> Any:
        """An input sample; what this release has no field for is left out."""
        names = self.sample.__dataclass_fields__
        return self.sample(**{name: value for name, value in values.items() if name in names})


def find_release() -> Release:
    """Imports miles. Raises ImportError where it, or a part that every rollout needs, is not there.

    A `ModuleNotFoundError` names every module that is lacking; the interpreter is of no more use then.
    """
    try:
        return _found_release()
    except ModuleNotFoundError as error:
        names = missing_modules(_NEEDED, error)
        if len(names) < 2:
            raise
        raise ModuleNotFoundError(f"No module named {', '.join(map(repr, names))}", name=error.name) from error


def _found_release() -> Release:
    importlib.import_module("miles")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # tokenizers come from a folder; nothing is to be looked up
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    stand_ins: list[str] = []
    server = first_of("miles.rollout.session.server", "miles.rollout.session.session_server")
    _keep_event_handlers(server, stand_ins)
    release = Release(
        version=_version(),
        sample=_imported("miles.utils.types", stand_ins).Sample,
        generate=_imported("miles.rollout.generate_hub.agentic_tool_call", stand_ins).generate,
        generate_input=_imported("miles.rollout.base_types", stand_ins).GenerateFnInput,
        session_server=_imported(server, stand_ins).SessionServer,
        load_tokenizer=_imported("miles.utils.processing_utils", stand_ins).load_tokenizer,
        http_utils=_imported("miles.utils.http_utils", stand_ins),
        stand_ins=stand_ins,
    )
    fields = release.sample.__dataclass_fields__
    if not exists("miles.rollout.session.v2"):
        release.absent["session.v2"] = "there is no miles.rollout.session.v2"
        release.absent["identity"] = "there are no tree sessions to give an identity to"
    for capability in ("spec_info", "prefix_cache_info", "weight_versions"):
        if capability not in fields:
            release.absent[capability] = f"Sample has no {capability}"
    return release


def _keep_event_handlers(server: str, stand_ins: list[str]) -> None:
    """FastAPI without `add_event_handler` fails states before April 2026, which close their HTTP client by it."""
    application = importlib.import_module("fastapi").FastAPI
    source = Path(getattr(importlib.util.find_spec(server), "origin", None) or "")
    if not hasattr(application, "add_event_handler") and "add_event_handler" in source.read_text(encoding="utf-8"):
        application.add_event_handler = lambda self, event, handler: None
        stand_ins.append("fastapi.FastAPI.add_event_handler")


def _imported(name: str, stand_ins: list[str]) -> Any:
    """The module `name`; what it needs and may be replaced is replaced, and listed in `stand_ins`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = next((m for m in _REPLACEABLE if m.rpartition(".")[2] in str(error) and m not in stand_ins), None)
        if missing is None:
            raise
        replace(missing, stand_ins)
        return _imported(name, stand_ins)


def replace(name: str, stand_ins: list[str]) -> None:
    """Put an empty module in the place of `name`: whatever is imported from it is `object`."""
    module = types.ModuleType(name)

    def stand_in(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return object

    module.__getattr__ = stand_in  # type: ignore[method-assign]
    parent, _, own = name.rpartition(".")
    setattr(importlib.import_module(parent), own, module)
    sys.modules[name] = module
    stand_ins.append(name)


def exists(name: str) -> bool:
    """Whether there is a module of this name; none of its parents need be importable."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def first_of(*names: str) -> str:
    found = next((name for name in names if exists(name)), None)
    if found is None:
        raise ImportError(f"miles has none of {', '.join(names)}")
    return found


def arguments(job: Job, *, checkpoint: str, port: int) -> Namespace:
    """The part of miles' command line that a rollout and its session server look at."""
    return Namespace(
        hf_checkpoint=checkpoint,
        chat_template_path=None,
        apply_chat_template_kwargs=None,
        tito_model=job["tito"],
        tito_allowed_append_roles=list(_APPEND_ROLES),
        use_session_server=job["session"],
        session_server_ip="127.0.0.1",
        session_server_port=port,
        session_server_ports=[port],
        session_message_matcher="strict",
        session_sample_picker_path="miles.rollout.session.v2.picker_hub.drop_retries",
        session_sample_postprocessor_path="miles.rollout.session.v2.postprocessor_hub.default_postprocess",
        custom_agent_function_path=f"{AGENT_MODULE}.run",
        generate_multi_samples=False,
        max_seq_len=job["max_seq_len"],
        save_debug_trajectory_data=None,
        sglang_speculative_algorithm=job["speculative_algorithm"],
        use_rollout_routing_replay=job["routing_replay"],
        use_rollout_indexer_replay=False,
        num_layers=job["routed_experts_layers"],
        moe_router_topk=job["routed_experts_topk"],
        miles_router_timeout=600.0,
        sglang_server_concurrency=1024,
        rollout_num_gpus=1,
        rollout_num_gpus_per_engine=1,
        eval_num_gpus=0,
        use_distributed_post=False,
    )


def _version() -> str:
    """Of the installed distribution, where the modules come from it; else of the checkout they lie in."""
    home = Path(importlib.import_module("miles").__file__ or "").resolve().parent.parent
    for name in ("miles-rl", "miles"):
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if Path(str(found.locate_file(""))).resolve() == home:
            return found.version
    text = "".join(path.read_text() for path in (home / "setup.py", home / "pyproject.toml") if path.is_file())
    stated = re.search(r"^\s*version\s*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    return f"{stated.group(1) if stated else 'unknown'} (checkout)"
