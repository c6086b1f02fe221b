"""The sample: its fields, its one collector, its checks."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from miles_sim.rollout.counters import PrefixCacheInfo, SpecInfo
from miles_sim.rollout.errors import AssemblyError
from miles_sim.rollout.sample import AdapterRef, RewardSpec, Sample, Status
from miles_sim.rollout.settings import RolloutSettings

META = {
    "finish_reason": {"type": "stop", "matched": 3},
    "prompt_tokens": 10,
    "cached_tokens": 4,
    "completion_tokens": 6,
    "weight_version": "8",
    "spec_verify_ct": 2,
    "spec_num_correct_drafts": 3,
    "spec_num_proposed_drafts": 6,
}


def full_sample() -> Sample:
    """A value other than the default in every field."""
    rows = np.arange(8, dtype=np.int32).reshape(4, 2, 1)
    return Sample(
        group_index=1,
        index=2,
        rollout_id=3,
        prompt=[{"role": "user", "content": "hi"}],
        tokens=[1, 2, 3, 4, 5],
        multimodal_inputs={"images": [1]},
        multimodal_train_inputs={"pixels": np.zeros(2)},
        response="ab",
        response_length=2,
        label="label",
        reward={"score": 1.0},
        loss_mask=[0, 1],
        weight_versions=["1"],
        rollout_log_probs=[-0.1, -0.2],
        rollout_routed_experts=rows,
        rollout_indexer_topk=rows + 1,
        remove_sample=True,
        teacher_log_probs=[-0.3, -0.4],
        opd_reverse_kl=[0.1, 0.2],
        status=Status.TRUNCATED,
        metadata={"a": [1], "dropped": {}},
        generate_function_path="a.b",
        train_metadata={"loss": "x"},
        adapter=AdapterRef("lora", 1),
        reward_spec=RewardSpec("math"),
        routing_key="key",
        non_generation_time=1.5,
        spec_info=SpecInfo(1, 2, 3, 4, 5),
        prefix_cache_info=PrefixCacheInfo(1, 2),
    )


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else bool(a == b)


def test_full_sample_is_full() -> None:
    default = Sample()
    for field in fields(Sample):
        assert not same(getattr(full_sample(), field.name), getattr(default, field.name)), field.name


def test_every_field_survives_a_dump() -> None:
    loaded = Sample.from_dict(full_sample().to_dict())
    for field in fields(Sample):
        assert same(getattr(loaded, field.name), getattr(full_sample(), field.name)), field.name


def test_dump_shares_nothing_with_the_sample() -> None:
    sample = full_sample()
    dump = sample.to_dict()
    dump["metadata"]["a"].append(2)
    dump["rollout_routed_experts"][0] = 99
    dump["tokens"].append(6)
    assert same(sample.to_dict(), full_sample().to_dict())


def test_a_sample_shares_nothing_with_the_dump_it_is_read_from() -> None:
    dump = full_sample().to_dict()
    loaded = Sample.from_dict(dump)
    dump["metadata"]["a"].append(2)
    dump["prompt"][0]["content"] = "other"
    dump["rollout_routed_experts"][0] = 99
    assert same(loaded.to_dict(), full_sample().to_dict())


@pytest.mark.parametrize(
    ("dump", "named"),
    [
        ({"index": "1"}, r"^sample\.index: '1' is not int, None$"),
        ({"response_length": True}, r"^sample\.response_length: True is not int$"),
        ({"reward": []}, r"^sample\.reward: \[\] is not int, float, dict, None$"),
        ({"adapter": {"name": "a"}}, r"^sample\.adapter: \{'name': 'a'\}: .*slot"),
        ([], "^sample: list is not a mapping$"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_by_name_and_by_what_is_allowed(dump: Any, named: str) -> None:
    with pytest.raises(AssemblyError, match=named):
        Sample.from_dict(dump)


def test_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(AssemblyError, match=r"sample\.speed"):
        Sample.from_dict({"speed": 1})


def test_unknown_status_is_refused_by_name() -> None:
    with pytest.raises(AssemblyError, match="finished"):
        Sample.from_dict({"status": "finished"})


def test_reset_keeps_prompt_and_identity_only() -> None:
    sample = full_sample()
    sample.reset_for_retry()
    kept = ["group_index", "index", "rollout_id", "prompt", "multimodal_inputs", "label", "generate_function_path"]
    kept += ["adapter", "reward_spec", "routing_key"]
    for field in fields(Sample):
        if field.name not in ("status", "metadata"):
            expected = full_sample() if field.name in kept else Sample()
            assert same(getattr(sample, field.name), getattr(expected, field.name)), field.name
    assert sample.status is Status.ABORTED
    assert sample.metadata == {"a": [1]}


def test_observe_adds_up_over_generations(settings: RolloutSettings) -> None:
    sample = Sample()
    sample.observe(META, settings)
    sample.observe(META | {"weight_version": "9"}, settings, "length")
    assert sample.spec_info == SpecInfo(6, 12, 4, 12)
    assert sample.prefix_cache_info == PrefixCacheInfo(8, 20)
    assert sample.weight_versions == ["8", "9"]
    assert sample.status is Status.TRUNCATED


def test_speculative_counters_are_absent_when_off() -> None:
    sample = Sample()
    sample.observe(META, RolloutSettings())
    assert sample.spec_info == SpecInfo()
    assert sample.prefix_cache_info == PrefixCacheInfo(4, 10)


def test_weight_version_spans_are_read_in_order(settings: RolloutSettings) -> None:
    spans = [{"version": "8", "start": 0, "end": 2}, {"version": "9", "start": 2, "end": 6}]
    sample = Sample()
    sample.observe(META | {"weight_version": "9", "weight_versions": spans}, settings)
    assert sample.weight_versions == ["8", "9"]
    assert sample.oldest_weight_version == 8


@pytest.mark.parametrize("told", [{"weight_version": 8}, {"weight_versions": [{"version": 8}]}])
def test_a_weight_version_that_is_no_string_is_refused(told: Any, settings: RolloutSettings) -> None:
    sample = Sample()
    with pytest.raises(AssemblyError, match=r"^meta_info\.weight_version: 8 is not a string$"):
        sample.observe(META | told, settings)
    assert sample == Sample()


def test_engine_without_numeric_version_has_no_oldest() -> None:
    assert Sample(weight_versions=["default"]).oldest_weight_version is None


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("stop", Status.COMPLETED),
        ("tool_calls", Status.COMPLETED),
        ("length", Status.TRUNCATED),
        ("abort", Status.ABORTED),
    ],
)
def test_every_finish_reason_has_a_final_status(reason: str, status: Status, settings: RolloutSettings) -> None:
    for meta_info, given in ((META, reason), (META | {"finish_reason": {"type": reason}}, None)):
        sample = Sample()
        sample.observe(meta_info, settings, given)
        assert sample.status is status


@pytest.mark.parametrize("reason", ["content_filter", "function_call", "", None, 3, {"type": None}, {}, ["stop"]])
def test_unknown_finish_reason_is_refused_and_nothing_is_counted(reason: Any, settings: RolloutSettings) -> None:
    sample = Sample()
    with pytest.raises(AssemblyError, match="finish_reason"):
        sample.observe(META | {"finish_reason": reason}, settings)
    assert sample == Sample()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("response_length", 6),
        ("response_length", -1),
        ("loss_mask", [1]),
        ("loss_mask", [1, 2]),
        ("rollout_log_probs", [0.0] * 3),
        ("teacher_log_probs", []),
        ("opd_reverse_kl", [0.0]),
        ("rollout_routed_experts", np.zeros((5, 1, 1), np.int32)),
        ("rollout_indexer_topk", np.zeros((3, 1, 1), np.int32)),
    ],
)
def test_lengths_that_disagree_are_refused_by_name(field: str, value: Any) -> None:
    sample = full_sample()
    sample.validate()
    setattr(sample, field, value)
    with pytest.raises(AssemblyError, match=field):
        sample.validate()


@pytest.mark.parametrize(
    "media",
    [
        {"mm_vision_num_patches": [4]},
        {"mm_audio_num_tokens": [4]},
        {"mm_vision_num_patches": [3], "mm_audio_num_tokens": [2]},
        {"mm_vision_num_patches": np.array([2, 3]), "mm_audio_num_tokens": None},
        {"mm_vision_num_patches": np.array([], dtype=np.int64), "mm_audio_num_tokens": (4,)},
    ],
)
def test_media_may_expand_expert_rows(media: dict[str, Any]) -> None:
    sample = full_sample()
    sample.multimodal_train_inputs = media
    sample.rollout_routed_experts = np.zeros((7, 1, 1), np.int32)
    sample.validate()


def test_effective_id_takes_zero_for_an_id() -> None:
    assert Sample(rollout_id=0, index=5).effective_id == 0
    assert Sample(index=0).effective_id == 0
    assert Sample().effective_id is None


def test_words_for_how_a_sample_ended_are_miles() -> None:
    assert [status.value for status in Status] == ["pending", "completed", "truncated", "aborted", "failed"]


def test_a_sample_starts_pending_and_empty() -> None:
    """Whoever adds to it relies on what it starts from."""
    sample = Sample()
    assert (sample.status, sample.tokens, sample.response, sample.response_length) == (Status.PENDING, [], "", 0)
    assert (sample.prompt, sample.metadata, sample.weight_versions) == ("", {}, [])
    assert (sample.remove_sample, sample.non_generation_time) == (False, 0.0)
    optional = ["index", "rollout_id", "group_index", "reward", "loss_mask", "rollout_log_probs", "adapter", "label"]
    assert {name: getattr(sample, name) for name in optional} == dict.fromkeys(optional)


def test_the_entry_of_a_mask_that_is_neither_is_named() -> None:
    sample = full_sample()
    sample.loss_mask = [0, 3]
    with pytest.raises(AssemblyError, match=r"^loss_mask: 3 is not 0 or 1$"):
        sample.validate()
