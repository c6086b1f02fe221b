"""`sampling_params` are read, and refused, as the release does it."""

from typing import Any

import pytest

from miles_sim.engine.errors import BareError, CrashError, NotModelledError
from miles_sim.engine.profiles import load
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.sampling_params import check_params, sampling_of_params

NEW, OLD = load("sglang-0.5.23").generate, load("sglang-0.5.20").generate


def test_an_unknown_key_is_named_with_all_that_are_known_or_crashes() -> None:
    with pytest.raises(BareError, match=r"^unknown field `zzz`, expected one of `max_new_tokens`, `stop`.*`choice`$"):
        check_params({"zzz": 1}, NEW)
    with pytest.raises(CrashError, match="zzz"):
        check_params({"zzz": 1}, OLD)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"temperature": "hot"}, 'invalid type: string "hot", expected f64'),
        ({"temperature": True}, "invalid type: boolean `true`, expected f64"),
        ({"max_new_tokens": 1.5}, "invalid type: floating point `1.5`, expected i64"),
        ({"ignore_eos": 1}, "invalid type: integer `1`, expected a boolean"),
        ({"regex": []}, "invalid type: sequence, expected a string"),
        ({"logit_bias": [1]}, "invalid type: sequence, expected a map"),
        ({"logit_bias": {"3": "x"}}, "invalid type: map, expected f64"),
        ({"stop": {}}, "invalid type: map, expected a value or an array of values for StringOrList"),
    ],
)
def test_a_value_of_another_type_is_shown(params: dict[str, Any], message: str) -> None:
    with pytest.raises(BareError) as caught:
        check_params(params, NEW)
    assert caught.value.body == {"error": message}
    with pytest.raises(CrashError):
        check_params(params, OLD)


@pytest.mark.parametrize("wire", [OLD, NEW])
def test_nulls_and_whole_numbers_pass(wire: Any) -> None:
    check_params({"temperature": 1, "top_p": None, "stop": ["a"], "stop_token_ids": [3], "n": 2}, wire)


def test_defaults_are_those_of_generate() -> None:
    assert sampling_of_params({}) == Sampling(max_new_tokens=128)
    assert sampling_of_params({"max_new_tokens": None, "top_k": 1 << 30, "temperature": None}) == Sampling()


def test_the_same_wish_is_the_same_as_in_chat() -> None:
    asked = {"max_new_tokens": 5, "stop": "x", "sampling_seed": 3, "top_p": 0.5, "stop_token_ids": [7]}
    assert sampling_of_params(asked) == Sampling(5, ("x",), (7,), 3, top_p=0.5)


@pytest.mark.parametrize("params", [{"beam_width": 2}, {"watermark": {}}, {"choice": ["a"]}])
def test_what_is_not_modelled_is_refused_by_name(params: dict[str, Any]) -> None:
    (name,) = params
    with pytest.raises(NotModelledError, match=f"^sampling_params.{name}: "):
        sampling_of_params(params)
