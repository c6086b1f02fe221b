"""What JSON can carry without changing it."""

import math
from typing import Any

DEEPEST = 200
"""Levels of nesting that are let through; orjson writes 254, and a payload wraps values in some of its own."""

_PLAIN = frozenset((str, bool, int, type(None)))
_NAMES = frozenset((str,))


def not_json(value: Any, place: str) -> str | None:
    """The first thing within `value` that JSON would refuse or change, as `place.key: what it is`; None if all fits.

    Tuples would come back as lists and number keys as strings; NaN and infinity are no JSON.
    """
    waiting: list[tuple[Any, str, int]] = [(value, place, 0)]
    inner: list[tuple[Any, Any]]
    while waiting:
        value, place, depth = waiting.pop()
        kind = type(value)
        if kind in _PLAIN:
            continue
        if kind is float:
            if not math.isfinite(value):
                return f"{place}: {value!r} is not a finite number"
        elif depth == DEEPEST:
            return f"{place}: nested deeper than {DEEPEST} levels"
        elif kind is list:
            if not _PLAIN.issuperset(map(type, value)):
                inner = [(n, entry) for n, entry in enumerate(value) if type(entry) not in _PLAIN]
                waiting += [(entry, f"{place}[{n}]", depth + 1) for n, entry in reversed(inner)]
        elif kind is dict:
            if not _NAMES.issuperset(map(type, value)):
                key = next(key for key in value if type(key) is not str)
                return f"{place}: key {key!r} is {type(key).__name__}, not str"
            inner = [(key, entry) for key, entry in value.items() if type(entry) not in _PLAIN]
            waiting += [(entry, f"{place}.{key}", depth + 1) for key, entry in reversed(inner)]
        else:
            return f"{place}: {value!r:.80} is {kind.__name__}, not JSON"
    return None
