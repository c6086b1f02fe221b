"""The small reader of schemas says what the library says, in words with a place."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.verify.shape import faults

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "kind": {"const": "reply"},
        "reason": {"enum": ["stop", "length", None]},
        "ids": {"type": "array", "items": {"type": "integer"}},
        "inner": {"type": ["object", "null"], "additionalProperties": {"type": "number"}},
    },
    "required": ["id", "kind"],
    "additionalProperties": False,
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["reply", "stop", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=4,
)
DOCUMENTS = st.dictionaries(st.sampled_from([*SCHEMA["properties"], "other"]), VALUES, max_size=6)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"id": "a", "kind": "reply"}, []),
        ({"id": 1, "kind": "reply"}, ["$.id: 1 is not string"]),
        ({"id": "a"}, ["$.kind: missing"]),
        ({"id": "a", "kind": "other"}, ["$.kind: 'other' is not 'reply'"]),
        ({"id": "a", "kind": "reply", "reason": "eos"}, ["$.reason: 'eos' is none of ['stop', 'length', None]"]),
        ({"id": "a", "kind": "reply", "ids": [1, True]}, ["$.ids[1]: True is not integer"]),
        ({"id": "a", "kind": "reply", "spec": 1}, ["$.spec: no such key"]),
        ({"id": "a", "kind": "reply", "inner": {"x": "y"}}, ["$.inner.x: 'y' is not number"]),
        ([], ["$: [] is not object"]),
    ],
)
def test_a_fault_is_told_with_its_place(document: Any, said: list[str]) -> None:
    assert list(faults(SCHEMA, document)) == said


@given(DOCUMENTS)
def test_it_agrees_with_the_library(document: Any) -> None:
    whole = all(not (isinstance(v, float) and v.is_integer()) for v in _leaves(document))
    if whole:  # JSON Schema takes 1.0 for an integer, which no answer of ours may be
        assert (list(faults(SCHEMA, document)) == []) is jsonschema.Draft202012Validator(SCHEMA).is_valid(document)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]
