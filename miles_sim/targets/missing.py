"""Every module that an import lacks, not the first alone. Standard library only."""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

_MOST = 40


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Lets the import go on past the modules in `names`, with empty ones in their place."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not any(fullname == name or fullname.startswith(f"{name}.") for name in self.names):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__getattr__ = _anything  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing in it."""


def _anything(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {"__getattr__": lambda self, name: _anything(name), "__call__": lambda self, *a, **k: a[0]})


def missing_modules(names: Sequence[str], first: ModuleNotFoundError) -> list[str]:
    """Modules without which importing `names` fails, `first.name` among them; of an absent package its name alone.

    This process is of no use for anything else afterwards: modules stand in it that were imported over empty ones.
    What an empty module cannot stand in for ends the search early.
    """
    finder = _Absent()
    sys.meta_path.append(finder)
    error: ModuleNotFoundError | None = first
    try:
        while error is not None and len(finder.names) < _MOST:
            if not error.name or error.name in finder.names or error.name.split(".")[0] == "miles":
                break
            finder.names.append(error.name)
            error = _attempt(names)
    finally:
        sys.meta_path.remove(finder)
    return finder.names


def _attempt(names: Sequence[str]) -> ModuleNotFoundError | None:
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            return error
        except Exception:  # whatever comes of empty modules
            continue
    return None
