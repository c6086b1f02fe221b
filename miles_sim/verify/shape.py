"""Whether a document has the shape that a JSON Schema says: the few keywords that ours use, without a library.

`type`, `properties`, `required`, `additionalProperties` (false, or a schema), `items`, `const`, `enum`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


_TELLING_NO_MORE = frozenset(("type", "description", "title", "default"))
"""Keywords of a schema that says but of what type a value is."""

Fits = Callable[[Any], bool]
_fitting: dict[int, tuple[Mapping[str, Any], Fits]] = {}
"""By identity of a schema, which is kept: whether a value has not one fault."""
_MOST = 1024


def faults(schema: Mapping[str, Any], value: Any) -> Iterator[str]:
    """What is wrong with `value`, one line a fault, with its place. A schema must not change."""
    known = _fitting.get(id(schema))
    if known is None:
        if len(_fitting) >= _MOST:
            _fitting.clear()
        known = _fitting[id(schema)] = (schema, _fits(schema))
    if not known[1](value):
        yield from _faults(schema, value, "$")


def _faults(schema: Mapping[str, Any], value: Any, place: str) -> Iterator[str]:
    types = schema.get("type")
    if types is not None and not any(_is(value, kind) for kind in ([types] if isinstance(types, str) else types)):
        yield f"{place}: {_short(value)} is not {types if isinstance(types, str) else ' or '.join(types)}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{place}: {_short(value)} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {_short(value)} is none of {schema['enum']}"
    if isinstance(value, dict):
        yield from _object_faults(schema, value, place)
    if isinstance(value, list) and "items" in schema and not _all_alike(schema["items"], value):
        for number, item in enumerate(value):
            yield from _faults(schema["items"], item, f"{place}[{number}]")


def _object_faults(schema: Mapping[str, Any], value: Mapping[str, Any], place: str) -> Iterator[str]:
    required: Sequence[str] = schema.get("required", ())
    known: Mapping[str, Any] = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    yield from (f"{place}.{name}: missing" for name in required if name not in value)
    for name, item in value.items():
        if name in known:
            yield from _faults(known[name], item, f"{place}.{name}")
        elif others is False:
            yield f"{place}.{name}: no such key"
        elif isinstance(others, Mapping):
            yield from _faults(others, item, f"{place}.{name}")


def _fits(schema: Mapping[str, Any]) -> Fits:
    """Whether `_faults` finds none, made once for a schema: by far the most values have none."""
    types = schema.get("type")
    kinds = None if types is None else [types] if isinstance(types, str) else list(types)
    exact = None if kinds is None else frozenset(kind for name in kinds for kind in _TYPES[name])
    required = frozenset(schema.get("required", ()))
    known = {name: _fits(inner) for name, inner in schema.get("properties", {}).items()}
    others = schema.get("additionalProperties", True)
    other = _fits(others) if isinstance(others, Mapping) else None
    items = schema.get("items")
    item = None if items is None else _fits(items)
    alike = frozenset[type]()
    if items is not None and len(items) == 1 and isinstance(items.get("type"), str):
        alike = frozenset(_TYPES[items["type"]])
    if kinds is not None and exact is not None and set(schema) <= _TELLING_NO_MORE:  # a leaf, as most are
        return lambda value: type(value) in exact or any(_is(value, kind) for kind in kinds)
    fixed = [(schema[word],) if word == "const" else schema[word] for word in ("const", "enum") if word in schema]

    def fits(value: Any) -> bool:
        kind = type(value)
        if exact is not None and kind not in exact and (kinds is None or not any(_is(value, k) for k in kinds)):
            return False
        if fixed and any(value not in allowed for allowed in fixed):
            return False
        if kind is dict or isinstance(value, dict):
            if not required <= value.keys():
                return False
            for name, inner in value.items():
                check = known.get(name, other)
                if check is None:
                    if others is False:
                        return False
                elif not check(inner):
                    return False
        elif item is not None and isinstance(value, list):
            return alike.issuperset(map(type, value)) or all(map(item, value))
        return True

    return fits


def _all_alike(items: Mapping[str, Any], values: Sequence[Any]) -> bool:
    """Quick, where items are but numbers or texts: all of them are of one of its types, to the letter."""
    kind = items.get("type")
    return len(items) == 1 and isinstance(kind, str) and set(_TYPES[kind]).issuperset(map(type, values))


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (not isinstance(value, bool) or kind == "boolean")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
