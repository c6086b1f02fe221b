"""What type a tool's schema gives an argument (SGLang function_call/utils.py `infer_type_from_json_schema`)."""

from typing import Any

from miles_sim.engine.formats.call import Tools


def argument_type(function: str, argument: str, tools: Tools, *, plain: bool = False) -> str | None:
    """`string`, `number`, `object`, …; None where the tool or the argument is unknown, or nothing is said.

    `plain`: its schema's `type` alone; KeyError or TypeError where the tool has no properties.
    """
    tool = next((tool["function"] for tool in reversed(tools) if tool["function"]["name"] == function), None)
    if plain and tool is not None:
        own = tool["parameters"]["properties"]
        return own[argument].get("type") if argument in own else None
    properties = ((tool or {}).get("parameters") or {}).get("properties")
    if not isinstance(properties, dict) or argument not in properties:
        return None
    return _type(properties[argument])


def _type(schema: Any) -> str | None:
    if not isinstance(schema, dict):
        return None
    said = schema.get("type")
    if isinstance(said, str):
        return said
    if isinstance(said, list) and said:
        return next((kind for kind in said if kind != "null"), "string")
    if "anyOf" in schema or "oneOf" in schema:
        choices = schema.get("anyOf") or schema.get("oneOf")
        kinds = [kind for choice in choices if (kind := _type(choice))] if isinstance(choices, list) else []
        if kinds:
            return "string" if "string" in kinds else kinds[0]
    if isinstance(schema.get("enum"), list):
        kinds_of_values = {_type_of(value) for value in schema["enum"]}
        return kinds_of_values.pop() if len(kinds_of_values) == 1 else "string"
    if isinstance(schema.get("allOf"), list):
        return next((kind for part in schema["allOf"] if (kind := _type(part)) and kind != "string"), "string")
    return "object" if "properties" in schema else "array" if "items" in schema else None


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]
