"""Contract packs: a folder of rule modules, loaded by path, so that no top-level module name is taken."""

import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType

from miles_sim.resources import CONTRACTS
from miles_sim.verify.rule import Rule


class PackError(ValueError):
    """A folder that is no contract pack, or a pattern that names no contract."""


def load_pack(folder: str | Path = CONTRACTS) -> tuple[Rule, ...]:
    """All rules of the modules in `folder`, by id. `test_*.py`, `conftest.py` and `_*.py` are left out."""
    folder = Path(folder).resolve()
    if not folder.is_dir():
        raise PackError(f"contracts: {folder} is not a folder")
    package = f"miles_sim_pack_{hashlib.blake2b(str(folder).encode(), digest_size=6).hexdigest()}"
    if package not in sys.modules:
        _load(package, folder / "__init__.py", search=[str(folder)])
    rules: dict[str, Rule] = {}
    for path in sorted(folder.glob("*.py")):
        if path.name.startswith(("_", "test_", "conftest.py")):
            continue
        module = _load(f"{package}.{path.stem}", path)
        for rule in (value for value in vars(module).values() if isinstance(value, Rule)):
            if rules.setdefault(rule.id, rule) is not rule:
                raise PackError(f"{path}: contract {rule.id!r} stands twice in {folder}")
    if not rules:
        raise PackError(f"contracts: {folder} has no rule module")
    return tuple(rules[id] for id in sorted(rules))


def _load(name: str, path: Path, search: list[str] | None = None) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    if search is not None and not path.is_file():
        module = ModuleType(name)
        module.__path__ = search
        sys.modules[name] = module
        return module
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=search)
    if spec is None or spec.loader is None:
        raise PackError(f"contracts: {path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise PackError(f"{path}: {type(error).__name__}: {error}") from error
    return module


def combine(packs: Iterable[tuple[Rule, ...]]) -> tuple[Rule, ...]:
    """Several packs as one; an id may stand in one of them only."""
    rules: dict[str, Rule] = {}
    for rule in (rule for pack in packs for rule in pack):
        if rules.setdefault(rule.id, rule) is not rule:
            raise PackError(f"contract {rule.id!r} stands in two packs")
    return tuple(rules[id] for id in sorted(rules))


def select(rules: Sequence[Rule], patterns: Sequence[str]) -> tuple[Rule, ...]:
    """The rules whose id matches one of the glob `patterns`; all without a pattern."""
    for pattern in patterns:
        if not any(fnmatchcase(rule.id, pattern) for rule in rules):
            areas = ", ".join(sorted({rule.area for rule in rules}))
            raise PackError(f"contract: {pattern!r} matches none of the {len(rules)} contracts (areas: {areas})")
    return tuple(rule for rule in rules if not patterns or any(fnmatchcase(rule.id, p) for p in patterns))
