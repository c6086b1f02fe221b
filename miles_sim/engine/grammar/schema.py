"""A seeded instance of a JSON schema."""

import math
import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from miles_sim.engine.errors import NotModelledError
from miles_sim.engine.grammar.regex import text_of_pattern

DEEPEST = 6
"""Levels below which what need not be there is left out, and arrays are as short as they may be."""
HARD_LIMIT = 48
"""Levels at which a schema that demands more of itself without end is given up."""
MOST = 4_096
"""Values in an instance, and characters of a string that a length is demanded of."""
_REFUSED = ("not", "if", "contains", "dependentSchemas", "dependentRequired", "dependencies", "$dynamicRef")
_KINDS = ("object", "array", "string", "integer", "number", "boolean", "null")
_WORDS = ("alpha", "beta", "gamma", "delta", "north", "south", "river", "stone", "cloud", "amber", "light", "paper")
_FORMATS: dict[str, str] = {
    "date": r"20[0-2]\d-0[1-9]-[0-2][1-8]",
    "time": r"[01]\d:[0-5]\d:[0-5]\dZ",
    "date-time": r"20[0-2]\d-0[1-9]-[0-2][1-8]T[01]\d:[0-5]\d:[0-5]\dZ",
    "duration": r"P[1-9]DT[1-9]H",
    "email": r"[a-z]{3,8}@example\.(com|org)",
    "hostname": r"[a-z]{3,8}\.example\.(com|org)",
    "ipv4": r"10\.\d\.[1-9]\d\.[1-9]\d",
    "ipv6": r"2001:db8::[1-9a-f]{1,4}",
    "uri": r"https://[a-z]{3,8}\.example\.com/[a-z]{2,6}",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}",
}


class SchemaError(ValueError):
    """A schema that has no instance, or is none."""


def instance(schema: Any, random: Random, *, field: str = "json_schema") -> Any:
    """One value that obeys `schema`, keys in the schema's order; the same for the same state of `random`.

    `SchemaError` where the schema is none, `NotModelledError` on `field` for keywords that are not modelled
    (`not`, `if`, `contains`, `dependent…`).
    """
    try:
        return _Sampler(schema, random, field).value(schema, 0)
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        raise SchemaError(str(error)) from None


class _Sampler:
    def __init__(self, root: Any, random: Random, field: str) -> None:
        self._root, self._random, self._field = root, random, field
        self._values = 0

    def value(self, schema: Any, depth: int) -> Any:
        schema = self._resolved(schema, depth)
        self._values += 1
        if self._values > MOST:
            raise NotModelledError(self._field, self._root, f"instances of up to {MOST} values")
        if depth > HARD_LIMIT:
            raise SchemaError("the schema demands itself without end")
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._choice(_list(schema, "enum"), "enum")
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._alternative(schema, key, depth)
        kind = self._kind(schema)
        made: Any = getattr(self, f"_{kind}")(schema, depth)
        return made

    def _resolved(self, schema: Any, depth: int) -> Mapping[str, Any]:
        """References followed, `allOf` taken together."""
        for _ in range(HARD_LIMIT):
            if schema is True:
                return {}
            if not isinstance(schema, Mapping):
                raise SchemaError(f"{schema!r} allows nothing" if schema is False else f"{schema!r} is no schema")
            self._check(schema)
            if "$ref" in schema:
                rest = {key: value for key, value in schema.items() if key != "$ref"}
                schema = _merged(self._target(schema["$ref"]), rest)
            elif "allOf" in schema:
                whole = {key: value for key, value in schema.items() if key != "allOf"}
                for part in _list(schema, "allOf"):
                    whole = _merged(whole, self._resolved(part, depth))
                schema = whole
            else:
                return schema
        raise SchemaError("references go round in a circle")

    def _check(self, schema: Mapping[str, Any]) -> None:
        for key in _REFUSED:
            if key in schema:
                raise NotModelledError(self._field, {key: schema[key]}, f"schemas without {key}")

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise NotModelledError(self._field, reference, "references within the schema")
        found = self._root
        for part in reference[1:].split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or part not in found:
                raise SchemaError(f"$ref: {reference!r} points nowhere")
            found = found[part]
        return found

    def _alternative(self, schema: Mapping[str, Any], key: str, depth: int) -> Any:
        rest = {name: value for name, value in schema.items() if name != key}
        options = list(_list(schema, key))
        if depth >= DEEPEST:  # what ends soonest
            options = sorted(options, key=lambda option: len(str(self._shallow(option))))[:1]
        return self.value(_merged(rest, self._resolved(self._choice(options, key), depth)), depth + 1)

    def _shallow(self, option: Any) -> Any:
        resolved = self._resolved(option, 0)
        return "x" * 500 if resolved.get("type") in ("object", "array") else resolved

    def _kind(self, schema: Mapping[str, Any]) -> str:
        said = schema.get("type")
        if isinstance(said, list):
            said = self._choice(said, "type")
        if said is None:
            hints = {"properties": "object", "required": "object", "items": "array", "prefixItems": "array"}
            hints |= {"pattern": "string", "format": "string", "minLength": "string", "maxLength": "string"}
            hints |= {"minimum": "number", "maximum": "number", "multipleOf": "number"}
            said = next((kind for key, kind in hints.items() if key in schema), None)
        if said is None:
            return self._random.choice(("string", "integer", "boolean"))
        if said not in _KINDS:
            raise SchemaError(f"type: {said!r} is none of {', '.join(_KINDS)}")
        return str(said)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, Mapping) or not isinstance(required, list):
            raise SchemaError("properties and required are an object and a list")
        made: dict[str, Any] = {}
        for name, inner in properties.items():
            if name in required or (depth < DEEPEST and inner is not False and self._random.random() < 0.8):
                made[name] = self.value(inner, depth + 1)
        extra = schema.get("additionalProperties", True)
        for name in required:
            if name not in made:
                made[name] = self.value(extra, depth + 1)
        return made | self._extras(schema, made, extra, depth)

    def _extras(self, schema: Mapping[str, Any], made: Mapping[str, Any], extra: Any, depth: int) -> dict[str, Any]:
        """Keys beyond the schema's own: of an object of which nothing is said, and up to `minProperties`."""
        least = _bound(schema, "minProperties", 0)
        free = not schema.get("properties") and extra is not False and depth < DEEPEST
        missing = max(least - len(made), self._random.randint(1, 3) if free and not made else 0)
        if missing and extra is False:
            raise SchemaError(f"minProperties: {least} are more than there are")
        if missing and ("propertyNames" in schema or "patternProperties" in schema):
            raise NotModelledError(self._field, "propertyNames, patternProperties", "objects with keys of their own")
        most = _bound(schema, "maxProperties", len(made) + missing)
        found: dict[str, Any] = {}
        while len(found) < min(missing, most - len(made)):
            name = self._random.choice(_WORDS) + (str(len(found)) if found else "")
            if name not in made:
                found[name] = self.value(extra if isinstance(extra, Mapping) else {}, depth + 1)
        return found

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        first = schema.get("prefixItems") or []
        items = schema.get("items", True)
        if isinstance(items, list):
            first, items = items, schema.get("additionalItems", True)
        least = _bound(schema, "minItems", 0)
        most = _bound(schema, "maxItems", max(least, len(first)) + 2)
        short = max(least, min(len(first), most))
        if items is False:
            most = min(most, len(first))
        if least > most:
            raise SchemaError(f"minItems: {least} is more than the {most} that may be there")
        count = short if depth >= DEEPEST or short >= most else self._random.randint(max(short, min(1, most)), most)
        made: list[Any] = []
        for place in range(count):
            inner = first[place] if place < len(first) else items
            made.append(self._unlike(made, inner, depth) if schema.get("uniqueItems") else self.value(inner, depth + 1))
        return made

    def _unlike(self, made: Sequence[Any], schema: Any, depth: int) -> Any:
        for _ in range(64):
            value = self.value(schema, depth + 1)
            if value not in made:
                return value
        raise SchemaError("uniqueItems: there are not so many different values")

    def _string(self, schema: Mapping[str, Any], depth: int) -> str:
        if "pattern" in schema:
            return self._patterned(str(schema["pattern"]))
        form = schema.get("format")
        if form in _FORMATS:
            return text_of_pattern(_FORMATS[str(form)], self._random)
        least, most = _bound(schema, "minLength", 0), _bound(schema, "maxLength", 1 << 20)
        if least > MOST:
            raise NotModelledError(f"{self._field}.minLength", least, f"up to {MOST}")
        if least > most:
            raise SchemaError(f"minLength: {least} is more than maxLength, {most}")
        text = " ".join(self._random.choice(_WORDS) for _ in range(self._random.randint(1, 3)))
        while len(text) < least:
            text += " " + self._random.choice(_WORDS)
        cut = text[: max(least, min(len(text), most))] if len(text) > most else text
        return cut if not cut.endswith(" ") else cut[:-1] + "x"

    def _patterned(self, pattern: str) -> str:
        """A schema's pattern may match anywhere; a text that it matches from end to end will do."""
        try:
            return text_of_pattern(pattern, self._random, field=self._field)
        except re.error as error:
            raise SchemaError(f"pattern: {pattern!r}: {error}") from None

    def _integer(self, schema: Mapping[str, Any], depth: int) -> int:
        low, high = self._range(schema, whole=True)
        step = schema.get("multipleOf", 1)
        if not isinstance(step, int | float) or isinstance(step, bool) or step <= 0:
            raise SchemaError(f"multipleOf: {step!r} is no number above 0")
        unit = int(step) if float(step).is_integer() else int(step * 10 ** len(repr(step).partition(".")[2]))
        first, last = -(-int(low) // unit), int(high) // unit
        if first > last:
            raise SchemaError(f"no integer from {low} to {high} is a multiple of {step}")
        return self._random.randint(first, last) * unit

    def _number(self, schema: Mapping[str, Any], depth: int) -> float | int:
        if "multipleOf" in schema:
            return self._integer(schema, depth)
        low, high = self._range(schema, whole=False)
        drawn = round(low + (high - low) * self._random.uniform(0.1, 0.9), 2)
        return drawn if low <= drawn <= high else low + (high - low) / 2

    def _range(self, schema: Mapping[str, Any], *, whole: bool) -> tuple[float, float]:
        """Both ends may be reached."""
        margin = 1 if whole else 1e-6
        lows = [_number(schema, "minimum"), _above(schema, "exclusiveMinimum", schema.get("minimum"), margin)]
        highs = [_number(schema, "maximum"), _above(schema, "exclusiveMaximum", schema.get("maximum"), -margin)]
        low = max((value for value in lows if value is not None), default=None)
        high = min((value for value in highs if value is not None), default=None)
        if low is None:
            low = 0 if high is None or high >= 0 else high - 100
        if high is None:
            high = low + 100
        if whole:
            low, high = math.ceil(low), math.floor(high)
        if low > high:
            raise SchemaError(f"no number from {low} to {high}")
        return low, high

    def _boolean(self, schema: Mapping[str, Any], depth: int) -> bool:
        return self._random.random() < 0.5

    def _null(self, schema: Mapping[str, Any], depth: int) -> None:
        return None

    def _choice(self, options: Sequence[Any], key: str) -> Any:
        if not options:
            raise SchemaError(f"{key}: an empty list")
        return self._random.choice(options)


def _list(schema: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = schema[key]
    if not isinstance(value, list):
        raise SchemaError(f"{key}: {value!r} is no list")
    return value


def _number(schema: Mapping[str, Any], key: str) -> float | None:
    value = schema.get(key)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise SchemaError(f"{key}: {value!r} is no number")
    return value


def _above(schema: Mapping[str, Any], key: str, inclusive: Any, margin: float) -> float | None:
    """An exclusive bound as one that may be reached; `true` makes the inclusive one exclusive (draft 4)."""
    if schema.get(key) is True:
        return None if inclusive is None else inclusive + margin
    bound = None if schema.get(key) is False else _number(schema, key)
    return None if bound is None else bound + margin


def _bound(schema: Mapping[str, Any], key: str, default: int) -> int:
    value = _number(schema, key)
    return default if value is None else max(int(value), 0)


def _merged(first: Any, second: Any) -> dict[str, Any]:
    """Both at once: properties and what is required come together, of other keywords the second one's hold."""
    if first is True or first is False:
        first = {} if first else {"enum": []}
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        raise SchemaError(f"{first!r} is no schema")
    both = {**first, **second}
    if "properties" in first and "properties" in second:
        both["properties"] = {**first["properties"], **second["properties"]}
    if "required" in first and "required" in second:
        both["required"] = list(dict.fromkeys([*first["required"], *second["required"]]))
    return both
