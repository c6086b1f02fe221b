"""The payload: whatever is computed crosses unchanged, whatever is malformed is refused by name."""

import copy
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from miles_sim.rollout.collect import collect
from miles_sim.rollout.counters import PrefixCacheInfo, SpecInfo
from miles_sim.rollout.errors import WireError
from miles_sim.rollout.sample import Sample, Status
from miles_sim.rollout.wire import FIELDS, META, SamplesReply, decode_samples, encode_samples


def computed() -> Sample:
    """A value other than the default in every field that crosses."""
    return Sample(
        tokens=[1, 2, 3, 4, 70_000],
        response="añb",
        response_length=2,
        loss_mask=[0, 1],
        rollout_log_probs=[-0.1, -1e-300],
        rollout_routed_experts=np.arange(8, dtype=np.int32).reshape(4, 2, 1),
        rollout_indexer_topk=np.arange(8, dtype=np.int32).reshape(4, 1, 2),
        status=Status.TRUNCATED,
        weight_versions=["1", "2"],
        spec_info=SpecInfo(1, 2, 3, 4, 5),
        prefix_cache_info=PrefixCacheInfo(1, 2),
        metadata={"leaf": {"node_id": 0}},
        reward=0.5,
    )


def crossed(*samples: Sample, into: Sample | None = None) -> SamplesReply:
    return decode_samples(encode_samples(samples, {}, session="v2"), into or Sample(), session="v2")


def equal(a: Any, b: Any) -> bool:
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else bool(a == b)


def test_table_holds_every_field_that_assembly_computes(forest: Any, settings: Any) -> None:
    forest.grow()
    (sample,) = collect(
        forest.records,
        settings=settings,
        tokenizer=forest.tokenizer,
        max_seq_len=None,
        agent_metadata={"reward": 1.0},
    ).samples
    blank = Sample()
    changed = {f.name for f in fields(Sample) if getattr(sample, f.name) != getattr(blank, f.name)}
    assert changed <= set(FIELDS)


def test_every_field_crosses() -> None:
    (sample,) = crossed(computed()).samples
    for name in FIELDS:
        assert not equal(getattr(computed(), name), getattr(Sample(), name)), name
        assert equal(getattr(sample, name), getattr(computed(), name)), name


def test_every_other_field_is_the_inputs() -> None:
    given_sample = Sample(index=3, group_index=1, rollout_id=0, prompt="p", label="l", adapter=None, routing_key="k")
    (sample,) = crossed(computed(), into=given_sample).samples
    for field in fields(Sample):
        if field.name not in FIELDS:
            assert getattr(sample, field.name) == getattr(given_sample, field.name), field.name


@given(data=st.data())
def test_collected_samples_round_trip(data: st.DataObject, forests: Callable[..., Any], settings: Any) -> None:
    forest = forests(data.draw)
    collected = collect(
        forest.records, settings=settings, tokenizer=forest.tokenizer, max_seq_len=None, agent_metadata={"a": [None]}
    )
    payload = encode_samples(collected.samples, collected.session_metadata, collected.empty_reason, session="v2")
    reply = decode_samples(payload, Sample(), session="v2")
    assert reply.samples == collected.samples
    assert reply.session_metadata == collected.session_metadata


def test_nulls_stay_null_and_keep_an_inputs_reward() -> None:
    sample = Sample(status=Status.ABORTED)
    (plain,) = crossed(sample, into=Sample(reward=0.25, metadata={"a": 1})).samples
    assert (plain.loss_mask, plain.rollout_log_probs, plain.rollout_routed_experts) == (None, None, None)
    assert plain.reward == 0.25
    assert plain.metadata == {"a": 1}


def test_samples_share_nothing() -> None:
    given_sample = Sample(metadata={"own": []}, prompt=[{"role": "user"}])
    before = copy.deepcopy(given_sample)
    first, second = crossed(computed(), computed(), into=given_sample).samples
    first.metadata["own"].append(1)
    first.tokens.append(1)
    first.weight_versions.append("9")
    assert first.rollout_routed_experts is not None
    first.rollout_routed_experts[0] = 9
    assert isinstance(first.prompt, list)
    first.prompt[0]["role"] = "system"
    assert given_sample == before
    assert second.metadata["own"] == []
    assert second.tokens == computed().tokens
    assert equal(second.rollout_routed_experts, computed().rollout_routed_experts)


def test_view_of_an_array_crosses_by_value() -> None:
    sample = computed()
    sample.rollout_routed_experts = np.arange(16, dtype=np.int32).reshape(2, 4, 2).transpose(1, 0, 2)
    (found,) = crossed(sample).samples
    assert equal(found.rollout_routed_experts, sample.rollout_routed_experts)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tokens", None),
        ("tokens", [1, -2]),
        ("tokens", [1.5]),
        ("tokens", [[1]]),
        ("tokens", ["a"]),
        ("loss_mask", [0, 2]),
        ("loss_mask", [0, 257]),
        ("loss_mask", [-1, 0]),
        ("rollout_log_probs", [0.0, float("nan")]),
        ("rollout_log_probs", [float("-inf"), 0.0]),
        ("rollout_log_probs", [None, 0.0]),
        ("rollout_routed_experts", np.zeros((4, 1), np.int64)),
        ("rollout_indexer_topk", [[1]] * 4),
        ("metadata", {"a": float("nan")}),
        ("metadata", {"a": {1}}),
        ("metadata", {"a": 1 << 70}),
        ("reward", np.float32(1)),
        ("weight_versions", ("1",)),
    ],
)
def test_value_that_does_not_fit_is_not_sent(field: str, value: Any) -> None:
    sample = computed()
    setattr(sample, field, value)
    with pytest.raises(WireError, match=field if field != "metadata" or value["a"] != 1 << 70 else META):
        encode_samples([sample], {}, session="v2")


def test_rows_may_hold_any_number() -> None:
    sample = computed()
    sample.rollout_routed_experts = np.full((4, 1, 1), -1, np.int32)
    (found,) = decode_samples(encode_samples([sample], {}, session="v2"), Sample(), session="v2").samples
    assert (found.rollout_routed_experts == sample.rollout_routed_experts).all()


def tampered(change: Callable[[dict[str, Any], dict[str, Any]], None]) -> bytes:
    """A sound payload of one sample after `change(tensors, meta)`."""
    tensors = dict(load(encode_samples([computed()], {}, session="v2")))
    meta = orjson.loads(tensors.pop(META).tobytes())
    change(tensors, meta)
    tensors[META] = np.frombuffer(orjson.dumps(meta), dtype=np.uint8)
    return save(tensors)


def set_row(**values: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda tensors, meta: meta["samples"][0].update(values)


def set_tensor(name: str, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda tensors, meta: tensors.update({name: value})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda tensors, meta: tensors.pop("tokens.0"), "tokens.0"),
        (lambda tensors, meta: meta["samples"][0].pop("spec_info"), "spec_info: missing"),
        (lambda tensors, meta: meta["samples"][0].pop("nulls"), "nulls"),
        (lambda tensors, meta: meta.pop("session_metadata"), "session_metadata"),
        (lambda tensors, meta: meta.update(session="v1"), "session"),
        (lambda tensors, meta: meta.update(empty_reason="no_records"), "empty_reason"),
        (lambda tensors, meta: meta.update(samples=[], empty_reason="bored"), "empty_reason"),
        (set_tensor("tokens.1", np.zeros(1, np.int64)), r"tokens\.1"),
        (set_tensor("tokens.0", np.zeros(5, np.int32)), "int32"),
        (set_tensor("tokens.0", np.zeros((5, 1), np.int64)), "rank 2"),
        (set_tensor("tokens.0", np.full(5, -1, np.int64)), r"tokens: -1 is not at least 0$"),
        (set_tensor("loss_mask.0", np.array([0, 3], np.uint8)), r"0\.\.1"),
        (set_tensor("loss_mask.0", np.zeros(3, np.uint8)), "loss_mask: 3 entries"),
        (set_tensor("rollout_log_probs.0", np.array([0, np.nan])), "nan"),
        (set_tensor("rollout_log_probs.0", np.zeros(2, np.float32)), "float32"),
        (set_tensor("rollout_routed_experts.0", np.zeros((4, 1), np.int64)), "int64"),
        (set_tensor("rollout_routed_experts.0", np.zeros((5, 1), np.int32)), "rollout_routed_experts: 5 rows"),
        (set_row(status="finished"), "finished"),
        (set_row(status="done"), "status"),
        (set_row(metadata=[1]), "metadata"),
        (set_row(response=None), "response"),
        (set_row(response_length=True), "response_length: True is not int$"),
        (set_row(weight_versions=[1]), "weight_versions"),
        (set_row(spec_info={"spec_verify_ct": -1}), "spec_verify_ct"),
        (set_row(prefix_cache_info={"speed": 1}), "speed"),
        (set_row(reward="high"), rf"^{META}\.samples\[0\]\.reward: 'high' is not int, float, dict, null$"),
        (lambda tensors, meta: meta.update(samples=[7]), rf"^{META}\.samples\[0\]: 7 is not "),
        (set_row(nulls=["tokens"]), "nulls"),
        (set_row(nulls=["metadata"]), "nulls"),
        (set_row(nulls=["loss_mask"]), r"loss_mask\.0"),
    ],
)
def test_malformed_payload_is_refused_by_name(change: Any, named: str) -> None:
    with pytest.raises(WireError, match=named):
        decode_samples(tampered(change), Sample(), session="v2")


@pytest.mark.parametrize("payload", [b"", b"nonsense", save({"tokens.0": np.zeros(1)}), save({META: np.zeros(1)})])
def test_what_is_no_payload_is_refused(payload: bytes) -> None:
    with pytest.raises(WireError, match="payload"):
        decode_samples(payload, Sample(), session="v2")


def test_meta_that_is_no_json_is_refused() -> None:
    for meta, found in ((b"{", "no JSON"), (b"[]", r"\[\] is not dict")):
        with pytest.raises(WireError, match=f"^{META}: {found}"):
            decode_samples(save({META: np.frombuffer(meta, dtype=np.uint8)}), Sample(), session="v2")


@pytest.mark.parametrize(
    "fields",
    [
        {"weight_versions": ["1"]},
        {"spec_info": SpecInfo(1)},
        {"prefix_cache_info": PrefixCacheInfo(1)},
        {"teacher_log_probs": [0.0]},
    ],
)
def test_input_with_computed_values_is_refused_by_name(fields: dict[str, Any]) -> None:
    with pytest.raises(WireError, match=f"input sample: {next(iter(fields))}"):
        crossed(computed(), into=Sample(**fields))


def test_empty_payload_tells_why() -> None:
    payload = encode_samples([], {"max_trim_tokens": 0}, "no_records", session="v1")
    assert decode_samples(payload, Sample(), session="v1") == SamplesReply([], {"max_trim_tokens": 0}, "no_records")
    with pytest.raises(WireError, match="empty_reason"):
        encode_samples([], {}, session="v1")


def test_metadata_of_the_session_that_is_no_json_is_refused_by_its_place() -> None:
    with pytest.raises(WireError, match=rf"^{META}\.session_metadata\.a: nan is not a finite number$"):
        encode_samples([computed()], {"a": float("nan")}, session="v2")
    with pytest.raises(WireError, match=r"^samples\[1\]: dict is not a Sample$"):
        encode_samples([computed(), {}], {}, session="v2")  # type: ignore[list-item]


def test_an_input_that_holds_what_assembly_sets_is_refused_by_the_key() -> None:
    with pytest.raises(WireError, match=rf"^{META}\.samples\[0\]\.metadata\.leaf: the input sample has it, too$"):
        crossed(computed(), into=Sample(metadata={"leaf": 1}))


def test_the_layout_is_miles() -> None:
    """Both sides may be of other releases: a name that changes is noticed here."""
    tensors = load(encode_samples([computed()], {"a": 1}, session="v2"))
    arrays = ("tokens", "loss_mask", "rollout_log_probs", "rollout_routed_experts", "rollout_indexer_topk")
    assert {name: array.dtype.name for name, array in tensors.items()} == {
        "_samples_meta": "uint8",
        **dict(zip([f"{name}.0" for name in arrays], ["int64", "uint8", "float64", "int32", "int32"], strict=True)),
    }
    meta = orjson.loads(tensors["_samples_meta"].tobytes())
    assert set(meta) == {"samples", "session", "session_metadata", "empty_reason"}
    assert meta["samples"][0] == {
        "nulls": [],
        "response": "añb",
        "response_length": 2,
        "status": "truncated",
        "weight_versions": ["1", "2"],
        "spec_info": computed().spec_info.to_dict(),
        "prefix_cache_info": {"cached_tokens": 1, "total_prompt_tokens": 2},
        "metadata": {"leaf": {"node_id": 0}},
        "reward": 0.5,
    }


@pytest.mark.parametrize("reason", ["no_records", "all_truncated", "none_picked"])
def test_each_reason_to_be_empty_crosses(reason: str) -> None:
    payload = encode_samples([], {}, reason, session="v2")
    assert decode_samples(payload, Sample(), session="v2").empty_reason == reason
    with pytest.raises(WireError, match=f"empty_reason: '{reason}' beside 1 samples"):
        encode_samples([computed()], {}, reason, session="v2")


@pytest.mark.parametrize("kept", ["tokens", "metadata", "response", "response_length", "status", "weight_versions"])
def test_what_a_sample_always_has_is_never_null(kept: str) -> None:
    with pytest.raises(WireError, match=rf"samples\[0\]\.(nulls|{kept})"):
        decode_samples(tampered(set_row(nulls=[kept])), Sample(), session="v2")
    if kept != "tokens":
        with pytest.raises(WireError, match=rf"samples\[0\]\.{kept}: None is not"):
            decode_samples(tampered(set_row(**{kept: None})), Sample(), session="v2")


def test_a_list_of_lists_of_two_lengths_is_refused_by_name() -> None:
    ragged: Any = [[1], [2, 3]]
    with pytest.raises(WireError, match=r"^samples\[0\]\.tokens: not an array: "):
        encode_samples([Sample(tokens=ragged)], {}, session="v2")
