"""Parameters of a tool: SGLang refuses what is no JSON schema; from 0.5.13 on it takes types as databases name them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from miles_sim.engine.errors import CrashError, RequestError

if TYPE_CHECKING:
    from miles_sim.engine.request import Tool

_STANDARD = frozenset(("null", "boolean", "object", "array", "number", "string", "integer"))
_NAMES = {
    "string": "str text varchar char enum uuid date datetime time timestamp binary blob bytea bytes varbinary",
    "boolean": "bool",
    "integer": "bigint smallint tinyint",
    "number": "double decimal real numeric",
    "array": "arr tuple set",
    "object": "map",
}
_ALIASES = {name: standard for standard, names in _NAMES.items() for name in names.split()}
"""Type names of no JSON schema (function_call/utils.py)."""
_BEGINNINGS = (
    (("int", "uint", "long", "short", "unsigned"), "integer"),
    (("num", "float"), "number"),
    (("list",), "array"),
    (("dict",), "object"),
)
"""Those that may go on with a size or with what they hold, as `int32` or `list[str]`."""
_GOES_ON = frozenset("0123456789[<( \t")
_MAPPINGS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMAS = (
    *("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties"),
)


def check_tools(tools: Sequence["Tool"], *, aliases: bool) -> None:
    """`RequestError` in the release's words (serving_chat.py `_validate_request`) for the first tool whose parameters
    are no JSON schema. `aliases`: types are rewritten first, in the tools themselves, so that the model reads them so.
    """
    for number, tool in enumerate(tools):
        parameters = tool.function.parameters
        if parameters is None:
            continue
        try:
            fault, taken = _remembered(orjson.dumps(parameters), aliases)
        except orjson.JSONEncodeError:  # a whole number of more than 64 bits, say
            fault, taken = _looked_at(parameters, aliases)
        if fault is not None:
            raise RequestError(f"Tool {number} function {fault}")
        if taken is not None:
            tool.function.parameters = taken


@lru_cache(maxsize=256)
def _remembered(spelled: bytes, aliases: bool) -> tuple[str | None, Any]:
    return _looked_at(orjson.loads(spelled), aliases)


def _looked_at(parameters: Any, aliases: bool) -> tuple[str | None, Any]:
    """What is wrong with them, and what they are rewritten to: None for either where there is nothing."""
    from jsonschema import Draft202012Validator, SchemaError  # when it is needed: most requests bring no tools

    try:
        taken = rewritten(parameters) if aliases else parameters
        Draft202012Validator.check_schema(taken)
    except SchemaError as error:
        return f"has invalid 'parameters' schema: {error}", None
    except RecursionError as error:
        if not aliases:
            raise CrashError(str(error), told=True) from None
        return "'parameters' schema is too deeply nested or contains a cycle.", None
    return None, None if taken == parameters else taken


def rewritten(schema: Any) -> Any:
    """A schema with the standard name of each type that has one; others stay, and are no JSON schema then."""
    if isinstance(schema, list):
        return [rewritten(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    kind = schema.get("type")
    if isinstance(kind, str):
        found["type"] = _standard(kind)
    elif isinstance(kind, list):
        found["type"] = names = []
        for name in map(_standard, kind):
            if name not in names:
                names.append(name)
    for key in _MAPPINGS:
        if isinstance(schema.get(key), dict):
            found[key] = {name: rewritten(each) for name, each in schema[key].items()}
    for key in _LISTS:
        if isinstance(schema.get(key), list):
            found[key] = rewritten(schema[key])
    return found | {key: rewritten(schema[key]) for key in _SCHEMAS if key in schema}


def _standard(name: Any) -> Any:
    if not isinstance(name, str) or name in _STANDARD:
        return name
    base = name.partition("(")[0].strip().lower()
    if base in _STANDARD:
        return base
    if base in _ALIASES:
        return _ALIASES[base]
    for beginnings, standard in _BEGINNINGS:
        for beginning in beginnings:
            if base.startswith(beginning) and (base == beginning or base[len(beginning)] in _GOES_ON):
                return standard
    return name
