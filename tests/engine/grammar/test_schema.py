"""Drawn instances obey their schema, as an independent validator judges."""

from random import Random
from typing import Any

import jsonschema
import pytest

from miles_sim.engine.errors import NotModelledError
from miles_sim.engine.grammar.schema import SchemaError, instance

TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 2, "maxLength": 9},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 3},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["name", "children", "next"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}
SCHEMAS: list[Any] = [
    True,
    {},
    {"type": "object"},
    {"type": ["integer", "null"]},
    {"const": [1, {"a": None}]},
    {"enum": ["x", 3, None]},
    {"type": "integer", "minimum": 3, "exclusiveMaximum": 5},
    {"type": "integer", "minimum": -7, "maximum": -2, "multipleOf": 3},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 0.01},
    {"type": "number", "multipleOf": 0.25, "minimum": 1},
    {"type": "string", "pattern": "^[a-f0-9]{8}$"},
    {"type": "string", "minLength": 30},
    {"type": "string", "maxLength": 0},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "ipv6"},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 3, "maxItems": 3},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False, "minItems": 2},
    {"type": "array", "items": {"enum": [1, 2, 3, 4]}, "uniqueItems": True, "minItems": 4, "maxItems": 4},
    {"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "null"}}},
    {"type": "object", "minProperties": 3, "additionalProperties": {"type": "integer"}},
    {"allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"required": ["b"]}], "type": "object"},
    {"oneOf": [{"type": "string"}, {"type": "integer", "minimum": 5}]},
    {"type": "object", "anyOf": [{"properties": {"k": {"const": "a"}}, "required": ["k"]}]},
    TREE,
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
@pytest.mark.parametrize("seed", range(8))
def test_the_instance_obeys(schema: Any, seed: int) -> None:
    made = instance(schema, Random(seed))
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(made)
    assert made == instance(schema, Random(seed))


def test_keys_come_in_the_schemas_order() -> None:
    schema = {"type": "object", "properties": {k: {"type": "null"} for k in "zax"}, "required": list("xaz")}
    assert list(instance(schema, Random(0))) == list("zax")


def test_what_need_not_be_there_is_there_now_and_then() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": False}
    assert {len(instance(schema, Random(seed))) for seed in range(40)} == {0, 1}


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {}},
        {"if": {}, "then": {}},
        {"type": "array", "contains": {}},
        {"$ref": "http://elsewhere/schema"},
        {"type": "string", "minLength": 1 << 40},
        {"type": "array", "minItems": 1 << 40},
        {"type": "object", "minProperties": 2, "propertyNames": {"maxLength": 1}},
    ],
)
def test_what_is_not_modelled_is_refused_by_name(schema: Any) -> None:
    with pytest.raises(NotModelledError, match=r"^json_schema"):
        instance(schema, Random(0))


@pytest.mark.parametrize(
    "schema",
    [
        7,
        False,
        {"type": "thing"},
        {"enum": []},
        {"enum": 3},
        {"$ref": "#/nowhere"},
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "integer", "minimum": "x"},
        {"type": "string", "pattern": "("},
        {"type": "array", "minItems": 3, "maxItems": 2},
        {"type": "array", "items": {"const": 1}, "uniqueItems": True, "minItems": 2},
    ],
    ids=str,
)
def test_what_has_no_instance_is_no_schema(schema: Any) -> None:
    with pytest.raises(SchemaError):
        instance(schema, Random(0))
