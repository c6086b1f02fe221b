"""What JSON can carry without changing it."""

import math
from typing import Any

_PLAIN = (str, bool, int, type(None))


def not_json(value: Any, place: str) -> str | None:
    """The first thing within `value` that JSON would refuse or change, as `place.key: what it is`; None if all fits.

    Tuples would come back as lists and number keys as strings; NaN and infinity are no JSON.
    """
    kind = type(value)
    if kind in _PLAIN:
        return None
    if kind is float:
        return None if math.isfinite(value) else f"{place}: {value!r} is not a finite number"
    if kind is list:
        if all(type(entry) is int for entry in value):
            return None
        return _first(not_json(entry, f"{place}[{n}]") for n, entry in enumerate(value))
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return f"{place}: key {key!r} is {type(key).__name__}, not str"
        return _first(not_json(entry, f"{place}.{key}") for key, entry in value.items())
    return f"{place}: {value!r:.80} is {kind.__name__}, not JSON"


def _first(faults: Any) -> str | None:
    return next((fault for fault in faults if fault is not None), None)
