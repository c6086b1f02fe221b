"""What the miles of this interpreter is and can do, found out by looking. Standard library and miles only."""

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
import types
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from .base import CAPABILITIES
from .miles_functions import PICKER, POSTPROCESSOR
from .miles_router import PATCH, ROUTER, RouterSessions, find_router
from .miles_serving import PAUSES
from .miles_wire import find_wire
from .missing import missing_modules

ENGINE_ACTOR = "miles.backends.sglang_utils.sglang_engine"
"""The trainer's modules import the actor that runs a GPU engine, and never touch it on the way from samples to data."""
_SERVERS = ("miles.rollout.session.server", "miles.rollout.session.session_server")
_TREES = "miles.rollout.session.v2"
NODE_CAP = "MAX_NODES"
"""Most generations of a tree, in its module."""
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
    direct: tuple[Any, Any] | None = None
    """Its `generate` without tools and with them."""
    routed: bool = False
    """Sessions are routes of its own router."""
    driver: Any = None
    """The module to which samples come as bytes."""
    tree: Any = None
    """The module that says how many generations a tree holds."""
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
    stand_ins: list[str] = [PAUSES]
    release = Release(
        version=_version(),
        sample=_imported("miles.utils.types", stand_ins).Sample,
        generate=_imported("miles.rollout.generate_hub.agentic_tool_call", stand_ins).generate,
        generate_input=_imported("miles.rollout.base_types", stand_ins).GenerateFnInput,
        session_server=_session_server(stand_ins),
        load_tokenizer=_imported("miles.utils.processing_utils", stand_ins).load_tokenizer,
        http_utils=_imported("miles.utils.http_utils", stand_ins),
        routed=not any(map(exists, _SERVERS)),
        stand_ins=stand_ins,
    )
    release.absent["faults.cancel"] = "the task of a rollout is in another process"
    _find_sample_parts(release)
    _find_session_parts(release)
    _find_direct(release)
    return release


def _session_server(stand_ins: list[str]) -> Any:
    """What serves sessions, made of settings and the engine's URL."""
    server = next((name for name in _SERVERS if exists(name)), None)
    if server is not None:
        _keep_event_handlers(server, stand_ins)
        return _imported(server, stand_ins).SessionServer
    _keep_event_handlers(ROUTER, stand_ins)
    router = find_router()
    if router is None:
        raise ImportError(f"miles has none of {', '.join(_SERVERS)}, and no sessions in its router")
    stand_ins.append(PATCH)
    return partial(RouterSessions, router)


def _find_sample_parts(release: Release) -> None:
    for capability in ("spec_info", "prefix_cache_info", "weight_versions"):
        if capability not in release.sample.__dataclass_fields__:
            release.absent[capability] = f"Sample has no {capability}"
    if not exists("miles.utils.lora"):
        release.absent["lora"] = "there is no miles.utils.lora"


def _find_session_parts(release: Release) -> None:
    release.driver = find_wire()
    if release.driver is None:
        release.absent["wire"] = "samples are assembled in the driver: nothing crosses but records"
    if not exists(_TREES):
        release.absent["session.v2"] = f"there is no {_TREES}"
        release.absent["identity"] = "there are no tree sessions to give an identity to"
        release.absent["hooks"] = release.absent["node_cap"] = "there are no tree sessions"
        return
    lacking = [name for name in (PICKER, POSTPROCESSOR) if not exists(name.rpartition(".")[0])]
    if lacking:
        release.absent["hooks"] = f"there is no {lacking[0]}"
    release.tree = importlib.import_module(f"{_TREES}.tree_trajectory")
    if not hasattr(release.tree, NODE_CAP):
        release.absent["node_cap"] = f"{release.tree.__name__} has no {NODE_CAP}"


def _find_direct(release: Release) -> None:
    try:
        release.direct = (
            _imported("miles.rollout.generate_hub.single_turn", release.stand_ins).generate,
            _imported("miles.rollout.generate_hub.multi_turn", release.stand_ins).generate,
        )
    except Exception as error:  # whatever a part that no other play needs may lack
        release.absent["session.direct"] = f"generate_hub cannot be imported: {type(error).__name__}: {error}"


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
    if parent:
        setattr(importlib.import_module(parent), own, module)
    sys.modules[name] = module
    stand_ins.append(name)


def exists(name: str) -> bool:
    """Whether there is a module of this name; none of its parents need be importable."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


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
