"""Values that JSON would refuse or change are told by place."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.plain import not_json

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(plain)
def test_what_passes_comes_back_unchanged(value: Any) -> None:
    assert not_json(value, "it") is None
    assert json.loads(json.dumps(value, allow_nan=False)) == value


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), (1,), {1}, np.float32(1), np.zeros(1), {1: 2}, object(), b"x"]
)
def test_what_would_not_is_told_by_place(value: Any) -> None:
    assert not_json(value, "it")
    fault = not_json({"a": [0, {"b": value}]}, "it")
    assert fault is not None
    assert fault.startswith("it.a[1].b: ")
