"""Whether a document has the shape that a JSON Schema says: the few keywords that ours use, without a library.

`type`, `properties`, `required`, `additionalProperties` (false, or a schema), `items`, `const`, `enum`.
"""

from collections.abc import Iterator, Mapping, Sequence
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


def faults(schema: Mapping[str, Any], value: Any, place: str = "$") -> Iterator[str]:
    """What is wrong with `value`, one line a fault, with its place."""
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
            yield from faults(schema["items"], item, f"{place}[{number}]")


def _object_faults(schema: Mapping[str, Any], value: Mapping[str, Any], place: str) -> Iterator[str]:
    required: Sequence[str] = schema.get("required", ())
    known: Mapping[str, Any] = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    yield from (f"{place}.{name}: missing" for name in required if name not in value)
    for name, item in value.items():
        if name in known:
            yield from faults(known[name], item, f"{place}.{name}")
        elif others is False:
            yield f"{place}.{name}: no such key"
        elif isinstance(others, Mapping):
            yield from faults(others, item, f"{place}.{name}")


def _all_alike(items: Mapping[str, Any], values: Sequence[Any]) -> bool:
    """Quick, where items are but numbers or texts: all of them are of one of its types, to the letter."""
    kind = items.get("type")
    return len(items) == 1 and isinstance(kind, str) and set(_TYPES[kind]).issuperset(map(type, values))


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (not isinstance(value, bool) or kind == "boolean")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
