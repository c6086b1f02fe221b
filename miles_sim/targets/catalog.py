"""Targets by name."""

import importlib
import sys
from pathlib import Path
from typing import Any

from miles_sim.targets.advice import on_checkout
from miles_sim.targets.base import Target
from miles_sim.transport import LocalNetwork

NAMES: dict[str, str] = {
    "reference": "the implementation in miles_sim.rollout",
    "miles": "the miles that is installed for --python, or lies in --checkout",
}
"""Built-in targets. Any other is given as `pkg.mod:factory`: called without arguments, it returns a `Target`."""

METHODS = ("describe", "play", "close")
"""What an adapter has, as `Target` says."""

_REFERENCE = "miles_sim.targets.reference:ReferenceTarget"
_MILES = Path(__file__).with_name("miles.py")
_ROOT = Path(__file__).resolve().parents[2]


class UnknownTargetError(ValueError):
    """A target that there is none of, or an option that it has no use for."""


def open_target(
    name: str,
    *,
    python: str | None = None,
    optimize: bool = False,
    checkout: str | Path | None = None,
    network: LocalNetwork | None = None,
) -> Target:
    """The target called `name`.

    It runs in this process, on `network`, where that is possible: with `python` (an interpreter) it runs in that one,
    with `optimize` under `-O`, and miles always in a process of its own, by default under this interpreter.
    `checkout` is a folder searched for modules first. Raises `UnknownTargetError`.
    """
    if checkout is not None and not Path(checkout).is_dir():
        raise UnknownTargetError(f"checkout: {str(checkout)!r} is no folder")
    apart = python is not None or optimize or checkout is not None
    if name == "miles":
        wrong = on_checkout(Path(checkout)) if checkout is not None else None
        if wrong is not None:
            raise UnknownTargetError(f"checkout: {wrong}")
        return _remote(python, optimize, checkout, adapter=_MILES)
    if name == "reference":
        if checkout is not None:
            raise UnknownTargetError("checkout: the target 'reference' has none; it belongs to miles-sim itself")
        if apart:
            return _remote(python, optimize, None, target=_REFERENCE, fallback=_ROOT)
        from miles_sim.targets.reference import ReferenceTarget

        return ReferenceTarget(network)
    if ":" not in name:
        known = ", ".join(repr(known) for known in NAMES)
        raise UnknownTargetError(f"target: {name!r} is neither one of {known} nor a 'pkg.mod:factory'")
    if apart:
        return _remote(python, optimize, checkout, target=name, fallback=Path.cwd())
    return _made(name)


def _remote(python: str | None, optimize: bool, checkout: str | Path | None, **what: Any) -> Target:
    from miles_sim.targets.remote import RemoteTarget

    tree = None if checkout is None else str(checkout)
    return RemoteTarget(python or sys.executable, optimize=optimize, checkout=tree, **what)


def _made(name: str) -> Target:
    """What the factory gives, an adapter's three methods on it."""
    factory = _factory(name)
    try:
        target: Target = factory()
    except Exception as error:
        raise UnknownTargetError(
            f"target: {name!r}, called without arguments, raised {type(error).__name__}: {error}"
        ) from error
    if missing := [method for method in METHODS if not callable(getattr(target, method, None))]:
        raise UnknownTargetError(f"target: {name!r} gave a {type(target).__name__} without {', '.join(missing)}")
    return target


def _factory(name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, ValueError, AttributeError) as error:
        raise UnknownTargetError(f"target: {name!r} cannot be imported: {error}") from None
    if not callable(found):
        raise UnknownTargetError(f"target: {name!r} is a {type(found).__name__}, not a factory to call")
    return found
