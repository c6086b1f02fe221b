"""All kinds of fault, by name."""

import importlib
from functools import lru_cache

from miles_sim.faults.kind import Kind, entered

MODULES = ("transport", "http", "payload", "model", "life", "agent", "history", "session", "consumer")
"""Modules of `miles_sim.faults.kinds`; each enters its kinds when it is imported."""


class UnknownFaultError(ValueError):
    """A kind that is not in the catalogue."""


@lru_cache
def kinds() -> dict[str, Kind]:
    """Every kind by name, in the order of the layers."""
    for module in MODULES:
        importlib.import_module(f"miles_sim.faults.kinds.{module}")
    return dict(entered())


def kind_named(name: str) -> Kind:
    """The kind of that name; `UnknownFaultError` names those that are alike."""
    known = kinds()
    if name not in known:
        from difflib import get_close_matches

        near = get_close_matches(name, known, n=3) or sorted(known)[:3]
        raise UnknownFaultError(
            f"kind: {name!r} is not one of the {len(known)} kinds of fault; near: {', '.join(near)}"
        )
    return known[name]
