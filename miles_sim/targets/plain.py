"""Plain data out of any implementation's objects. Standard library only: adapters use it in foreign interpreters."""

import base64
import dataclasses
import enum
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

_SCALARS = (str, int, float, bool, type(None))
_EXACT = frozenset(_SCALARS)
_HOLDERS = frozenset((dict, list))
_NEVER_SHARED = (*_SCALARS, enum.Enum, tuple)
_SESSION = re.compile(r"http://[\w.-]+(?::\d+)?/sessions\b(?:/[0-9a-fA-F-]+)?")
_ID = re.compile(r"\b(?:0x[0-9a-f]{6,16}|[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")
"""An address in memory, or a random id."""


def plain(value: Any) -> Any:
    """`value` as JSON can carry it. Arrays become `Rows` documents, what has no plain form its type's name."""
    if type(value) in _EXACT:
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, dict | Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        # ids and logprobs, by far the most of what there is, need no look at each
        return list(value) if _EXACT.issuperset(map(type, value)) else [plain(item) for item in value]
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return scalar_or_rows(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: plain(getattr(value, name)) for name in _names(type(value))}
    return f"<{type(value).__module__}.{type(value).__qualname__}>"


def scalar_or_rows(array: Any) -> Any:
    """A numpy scalar as a number, a numpy array as a `Rows` document."""
    if array.shape == ():
        return array.item()
    little = array.astype(array.dtype.newbyteorder("<"))
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "base64": base64.b64encode(little.tobytes(order="C")).decode(),
    }


def scrubbed(error: Mapping[str, Any]) -> dict[str, Any]:
    """An error document without what differs from run to run: ports, session ids, addresses of objects."""
    message = _ID.sub("…", _SESSION.sub("http://sessions/sessions", error["message"]))
    return {**error, "message": message}


def shared_objects(owners: Mapping[str, Any]) -> list[str]:
    """Mutable values that two of the `owners` (name to dataclass) hold in common, as `0.tokens is 1.tokens`.

    Nested values count; of a shared value only its outermost place is named.
    """
    first: dict[int, str] = {}
    found: list[str] = []
    for owner, instance in owners.items():
        own: dict[int, str] = {}
        for name, value in _children(instance):
            if type(value) not in _EXACT:
                found += _shared(value, f"{owner}.{name}", first, own)
        first = {**own, **first}
    return found


def _shared(value: Any, place: str, first: Mapping[int, str], own: dict[int, str]) -> list[str]:
    if not _mutable(value) or id(value) in own:
        return []
    if id(value) in first:
        return [f"{first[id(value)]} is {place}"]
    own[id(value)] = place
    found: list[str] = []
    for key, item in _children(value):
        if type(item) not in _EXACT:
            found += _shared(item, f"{place}.{key}", first, own)
    return found


def _mutable(value: Any) -> bool:
    if type(value) in _HOLDERS:
        return True
    parameters = getattr(type(value), "__dataclass_params__", None)
    return not isinstance(value, _NEVER_SHARED) and not (parameters and parameters.frozen)


def _children(value: Any) -> Iterable[tuple[Any, Any]]:
    """What it holds and could share, with names; not all of what it cannot share is left out."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list):
        return () if _EXACT.issuperset(map(type, value)) else enumerate(value)
    if isinstance(value, Mapping):
        return value.items()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(name, getattr(value, name)) for name in _names(type(value))]
    return ()


@lru_cache(maxsize=64)
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))
