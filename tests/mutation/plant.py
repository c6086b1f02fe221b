"""Putting a mutant in the place of the code it was made of."""

import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
from collections.abc import Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .mutants import Mutant


def swap(mutant: Mutant) -> None:
    """Give the living function the mutant's code, so that whoever holds that function runs it.

    The changed module is run once, into names of its own; what that raises is raised.
    """
    names: dict[str, Any] = {"__name__": mutant.module, "__file__": str(mutant.path)}
    exec(compile(mutant.source, str(mutant.path), "exec"), names)
    living = _function(vars(sys.modules[mutant.module]), mutant.function)
    changed = _function(names, mutant.function)
    if repr(living.__defaults__) != repr(changed.__defaults__):
        living.__defaults__ = changed.__defaults__
    if repr(living.__kwdefaults__) != repr(changed.__kwdefaults__):
        living.__kwdefaults__ = changed.__kwdefaults__
    living.__code__ = changed.__code__


def _function(names: dict[str, Any], dotted: str) -> FunctionType:
    *classes, name = dotted.split(".")
    for outer in classes:
        names = vars(names[outer])
    found = names[name]
    if isinstance(found, property):
        found = found.fget
    found = inspect.unwrap(getattr(found, "__func__", found))
    if not isinstance(found, FunctionType):
        raise TypeError(f"{dotted}: {type(found).__name__} is no function")
    return found


class _Source(importlib.machinery.SourceFileLoader):
    def __init__(self, mutant: Mutant) -> None:
        super().__init__(mutant.module, str(mutant.path))
        self._text = mutant.source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self.path, "exec")


class Import(importlib.abc.MetaPathFinder):
    """Put on `sys.meta_path` before the module is first imported, it gives the mutant under the module's name."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        return importlib.util.spec_from_file_location(fullname, self._mutant.path, loader=_Source(self._mutant))
