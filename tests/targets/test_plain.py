"""Objects of any implementation as plain data, and what two of them hold in common."""

import base64
import json
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pytest

from miles_sim.document import read
from miles_sim.targets.observation import Rows
from miles_sim.targets.plain import plain, scrubbed, shared_objects


class Colour(Enum):
    RED = "red"


@dataclass
class Inner:
    count: int = 0


@dataclass(frozen=True)
class Fixed:
    count: int = 0


@dataclass
class Thing:
    tokens: list = field(default_factory=list)
    metadata: dict = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)
    fixed: Fixed = Fixed()
    colour: Colour = Colour.RED
    name: str = "thing"
    rows: object = None


def test_every_plain_value_is_json():
    value = {"a": (1, 2), 3: Colour.RED, "deep": [{"x": Inner(4)}], "flag": np.bool_(True), "n": np.int64(5)}
    assert json.loads(json.dumps(plain(value))) == {
        "a": [1, 2],
        "3": "red",
        "deep": [{"x": {"count": 4}}],
        "flag": True,
        "n": 5,
    }


def test_what_has_no_plain_form_gives_its_type_and_no_address():
    assert plain({1}) == "<builtins.set>"
    assert plain(object()) == "<builtins.object>"


@pytest.mark.parametrize("dtype", ["<i4", ">i4"])
def test_an_array_becomes_little_endian_rows(dtype):
    array = np.arange(6, dtype=dtype).reshape(3, 2)
    rows = read(Rows, plain(array), name="rows")
    assert rows.shape == (3, 2)
    assert rows.dtype == "int32"
    assert np.array_equal(np.frombuffer(base64.b64decode(rows.base64), "<i4").reshape(3, 2), array)


def test_errors_lose_ports_and_session_ids():
    error = {"type": "E", "bases": [], "message": "POST http://127.0.0.1:40123/sessions/0a1b2c/samples failed with 422"}
    assert scrubbed(error)["message"] == "POST http://sessions/sessions/samples failed with 422"


@pytest.mark.parametrize(
    "varying", ["0x7f11d1737840", "2adf9b44138241e3bf6a73a6789d33bc", "2adf9b44-1382-41e3-bf6a-73a6789d33bc"]
)
def test_errors_lose_ids_and_addresses_that_are_others_in_each_run(varying):
    error = {"type": "ValueError", "bases": [], "message": f"'{varying}' is none, 0x10 and deadbeef are"}
    assert scrubbed(error)["message"] == "'…' is none, 0x10 and deadbeef are"


def test_independent_objects_share_nothing():
    assert shared_objects({"input": Thing(), "0": Thing(), "1": Thing()}) == []


def test_a_shared_list_is_named_by_both_places():
    tokens = [1, 2]
    assert shared_objects({"0": Thing(tokens=tokens), "1": Thing(tokens=tokens)}) == ["0.tokens is 1.tokens"]


def test_of_a_shared_value_only_the_outermost_place_is_named():
    metadata = {"deep": {"deeper": []}}
    assert shared_objects({"input": Thing(metadata=metadata), "0": Thing(metadata=metadata)}) == [
        "input.metadata is 0.metadata"
    ]


def test_nested_values_are_found_too():
    deep = {"x": 1}
    found = shared_objects({"0": Thing(metadata={"a": [deep]}), "1": Thing(metadata={"b": deep})})
    assert found == ["0.metadata.a.0 is 1.metadata.b"]


def test_a_shared_mutable_dataclass_and_array_are_found():
    inner, rows = Inner(), np.zeros((2, 2))
    found = shared_objects({"0": Thing(inner=inner, rows=rows), "1": Thing(inner=inner, rows=rows)})
    assert found == ["0.inner is 1.inner", "0.rows is 1.rows"]


def test_values_that_cannot_change_may_be_shared():
    assert shared_objects({"0": Thing(fixed=Fixed(1)), "1": Thing()}) == []


def test_a_sample_returned_as_the_input_itself_shares_all_it_has():
    thing = Thing()
    assert shared_objects({"input": thing, "0": thing}) == [
        "input.tokens is 0.tokens",
        "input.metadata is 0.metadata",
        "input.inner is 0.inner",
    ]
