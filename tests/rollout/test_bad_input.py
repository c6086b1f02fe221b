"""What public functions are handed of the wrong type, or out of range, is refused by name, and nothing has changed."""

from dataclasses import fields
from typing import Any

import pytest

from miles_sim.rollout.collect import collect
from miles_sim.rollout.errors import AssemblyError, RolloutError, SettingsError, WireError
from miles_sim.rollout.generate import request_kwargs
from miles_sim.rollout.merge import merge_samples
from miles_sim.rollout.sample import Sample
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.rollout.wire import decode_samples, encode_samples

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("name", [spec.name for spec in fields(Sample) if spec.name != "label"])
@pytest.mark.parametrize("value", [{1, 2}, object(), b"x", 1j])
def test_no_field_of_a_dump_takes_just_anything(name: str, value: Any) -> None:
    with pytest.raises(AssemblyError, match=rf"sample\.{name}: "):
        Sample.from_dict({name: value})


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (None, "sample: NoneType"),
        ([], "sample: list"),
        ({"index": True}, "sample.index: True"),
        ({"tokens": None}, "sample.tokens: None"),
        ({"adapter": {"nome": "x"}}, "sample.adapter: {'nome': 'x'}"),
        ({"reward_spec": {"rm": 1}}, "sample.reward_spec"),
        ({"spec_info": {"spec_verify_ct": -1}}, "spec_info.spec_verify_ct: -1"),
        ({"prefix_cache_info": {"cached_tokens": NAN}}, "prefix_cache_info.cached_tokens: nan"),
    ],
)
def test_a_dump_that_is_none_is_refused_by_name(data: Any, named: str) -> None:
    with pytest.raises(AssemblyError) as caught:
        Sample.from_dict(data)
    assert named in str(caught.value)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, NAN, INF, "9"])
def test_a_limit_that_is_none_is_refused(limit: Any, forest: Any, settings: RolloutSettings) -> None:
    forest.grow()
    with pytest.raises(AssemblyError, match="max_seq_len: "):
        collect(forest.records, settings=settings, tokenizer=forest.tokenizer, max_seq_len=limit, agent_metadata=None)


@pytest.mark.parametrize("metadata", [[], "x", 3, {1}])
def test_agent_metadata_is_an_object(metadata: Any, forest: Any, settings: RolloutSettings) -> None:
    forest.grow()
    with pytest.raises(AssemblyError, match="agent metadata: "):
        collect(
            forest.records, settings=settings, tokenizer=forest.tokenizer, max_seq_len=None, agent_metadata=metadata
        )


@pytest.mark.parametrize("bad", [None, {}, "x"])
def test_what_is_no_sample_is_named(bad: Any, forest: Any) -> None:
    with pytest.raises(AssemblyError, match=r"samples\[1\]: "):
        merge_samples([Sample(), bad], forest.tokenizer)
    with pytest.raises(WireError, match=r"samples\[1\]: "):
        encode_samples([Sample(), bad], {}, session="v2")
    with pytest.raises(WireError):
        decode_samples(bad, Sample(), session="v2")


@pytest.mark.parametrize("params", [None, [], "x"])
def test_sampling_parameters_are_a_mapping(params: Any) -> None:
    with pytest.raises(SettingsError, match="sampling_params: "):
        request_kwargs(params)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_sampling_parameters_are_finite(value: float) -> None:
    with pytest.raises(SettingsError, match=r"sampling_params\.temperature: "):
        request_kwargs({"temperature": value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("session", "v3"),
        ("identity", None),
        ("tools_change", "drop"),
        ("replay_rows", "some"),
        ("max_seq_len", 0),
        ("max_seq_len", "9"),
        ("max_nodes", None),
        ("max_nodes", True),
        ("max_body_bytes", 1.5),
        ("routed_experts_layers", 0),
        ("request_timeout", 0),
        ("request_timeout", INF),
        ("collect_timeout", NAN),
        ("collect_tries", 0),
        ("collect_tries", None),
        ("session_idle_timeout", -1),
        ("session_idle_timeout", "1"),
        ("template_options", []),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name_and_value(name: str, value: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        RolloutSettings(**{name: value})
    assert str(caught.value).startswith(f"{name}: {value!r} is not ")
    assert isinstance(caught.value, RolloutError)
