"""A function of one's own in the settings: a built-in by its name, one at a dotted path, or the function itself."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from miles_sim.rollout.errors import SettingsError

T = TypeVar("T")


def resolve_hook(setting: str, value: object, built_in: Mapping[str, T]) -> T | Callable[..., Any]:
    """What a setting names: one of `built_in`, the function at `pkg.mod.fn` or `pkg.mod:fn`, or `value` itself.

    SettingsError names the setting, where that cannot be imported, is no function, or is asynchronous.
    """
    if isinstance(value, str) and value in built_in:
        return built_in[value]
    function: object = _imported(setting, value, built_in) if isinstance(value, str) else value
    if not callable(function):
        is_what = f"{type(function).__name__}, not" if isinstance(value, str) else "not a name, a dotted path or"
        raise SettingsError(f"{setting}: {value!r} is {is_what} a function")
    if inspect.iscoroutinefunction(function):
        raise SettingsError(f"{setting}: {hook_name(value)} is asynchronous, not a plain function")
    return function


def hook_name(value: object) -> str:
    """How an error calls a hook: as it is spelt in the settings, or by the function's own name."""
    return repr(value if isinstance(value, str) else getattr(value, "__qualname__", type(value).__name__))


def _imported(setting: str, path: str, built_in: Mapping[str, Any]) -> Any:
    module, _, name = path.replace(":", ".").rpartition(".")
    if not module:
        raise SettingsError(f"{setting}: {path!r} is not one of {sorted(built_in)}, nor a dotted path")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # a module may raise anything
        raise SettingsError(f"{setting}: {path!r} cannot be imported: {type(error).__name__}: {error}") from error
