"""A document that says only in what it differs from another one."""

from collections.abc import Mapping, Sequence
from typing import Any

_OPERATIONS = frozenset({"drop", "set", "after", "add"})


class OverlayError(ValueError):
    """A difference that does not fit the document it is about."""


def overlay(base: Any, changes: Any, *, place: str = "document") -> Any:
    """`base` with `changes` in place of what they name.

    A mapping changes a mapping key by key. A mapping changes a list by `drop` (names), `set` (name: new entry),
    `after` (name: entries that follow it) and `add` (entries at the end), in this order; an entry's name is itself,
    or its `key` where it is a mapping. Anything else replaces what was there. `OverlayError` for a name that the
    list lacks.
    """
    if isinstance(changes, Mapping) and isinstance(base, Mapping):
        return {
            key: overlay(base.get(key), changes[key], place=f"{place}.{key}") if key in changes else base[key]
            for key in [*base, *(key for key in changes if key not in base)]
        }
    if isinstance(changes, Mapping) and isinstance(base, list) and changes.keys() <= _OPERATIONS:
        return _changed_list(base, changes, place)
    return changes


def _changed_list(base: Sequence[Any], changes: Mapping[str, Any], place: str) -> list[Any]:
    entries = {_name(entry): entry for entry in base}
    for name in changes.get("drop", ()):
        _known(entries, name, f"{place}.drop")
        del entries[name]
    changed: list[Any] = []
    replaced, following = dict(changes.get("set", {})), dict(changes.get("after", {}))
    for name in (*replaced, *following):
        _known(entries, name, place)
    for name, entry in entries.items():
        changed.append(replaced.get(name, entry))
        changed.extend(following.get(name, ()))
    return [*changed, *changes.get("add", ())]


def _name(entry: Any) -> str:
    return str(entry["key"]) if isinstance(entry, Mapping) else str(entry)


def _known(entries: Mapping[str, Any], name: str, place: str) -> None:
    if name not in entries:
        raise OverlayError(f"{place}: {name!r} is none of {', '.join(entries)}")
