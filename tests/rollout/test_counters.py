"""Counters: every spelling, sums, and rates that say when they are unavailable."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.counters import SPELLINGS, PrefixCacheInfo, SpecInfo, read_prefix_cache, read_spec
from miles_sim.rollout.errors import AssemblyError

counts = st.integers(0, 1000)
infos = st.builds(SpecInfo, counts, counts, counts, counts, counts)


@pytest.mark.parametrize(("accepted", "drafted"), SPELLINGS)
def test_each_spelling_is_read(accepted: str, drafted: str) -> None:
    meta_info = {accepted: 5, drafted: 9, "spec_verify_ct": 3, "completion_tokens": 9}
    assert read_spec(meta_info) == SpecInfo(5, 9, 3, 9)


@pytest.mark.parametrize(("accepted", "drafted"), SPELLINGS)
def test_a_count_of_drafts_that_comes_without_the_other_makes_no_rate(accepted: str, drafted: str) -> None:
    for alone in (accepted, drafted):
        info = read_spec({alone: 5, "spec_verify_ct": 3, "completion_tokens": 9})
        assert info == SpecInfo(0, 0, 3, 9)
        honest = read_spec({accepted: 2, drafted: 6, "spec_verify_ct": 2, "completion_tokens": 5})
        assert (info + honest).accept_rate == pytest.approx(2 / 6)


def test_old_names_beside_new_ones_count_once() -> None:
    meta_info = {name: value for pair in SPELLINGS for name, value in zip(pair, (5, 9), strict=True)}
    assert read_spec(meta_info | {"spec_verify_ct": 3, "completion_tokens": 9}) == SpecInfo(5, 9, 3, 9)


@pytest.mark.parametrize(("accepted", "drafted", "steps"), [(10, 9, 3), (0, 9, 0), (5, 9, 0), (0, 1, 0)])
def test_counters_that_contradict_one_another_are_not_counted(accepted: int, drafted: int, steps: int) -> None:
    meta_info = {"spec_num_correct_drafts": accepted, "spec_num_proposed_drafts": drafted, "spec_verify_ct": steps}
    assert read_spec(meta_info | {"completion_tokens": 9}) == SpecInfo(0, 0, 0, 9, 9)
    true = read_spec(dict.fromkeys(meta_info, 9) | {"completion_tokens": 20})
    assert true == SpecInfo(9, 9, 9, 20)


def test_more_cached_ids_than_prompt_ids_are_not_counted() -> None:
    assert read_prefix_cache({"cached_tokens": 8, "prompt_tokens": 7}) == PrefixCacheInfo()
    assert read_prefix_cache({"cached_tokens": 7, "prompt_tokens": 7}) == PrefixCacheInfo(7, 7)


def test_rates_without_inputs_are_unavailable() -> None:
    assert SpecInfo().accept_rate is None
    assert SpecInfo().accept_length is None
    assert PrefixCacheInfo().hit_rate is None


def test_a_true_zero_stays_zero() -> None:
    assert read_spec({"spec_num_correct_drafts": 0, "spec_num_proposed_drafts": 6}).accept_rate == 0.0


def test_release_without_draft_counts_has_a_length_but_no_rate() -> None:
    info = read_spec({"spec_verify_ct": 3, "completion_tokens": 9, "spec_accept_rate": 0.5})
    assert (info.accept_rate, info.accept_length) == (None, 3.0)


def test_generation_without_step_count_does_not_inflate_the_length() -> None:
    told = read_spec({"spec_verify_ct": 3, "completion_tokens": 9})
    untold = read_spec({"completion_tokens": 90})
    assert (told + untold).accept_length == 3.0
    assert (told + untold).completion_token_num == 99


def test_id_of_the_prefill_counts_as_completion() -> None:
    told = read_spec({"spec_verify_ct": 3, "completion_tokens": 9})
    assert (told + read_spec({"completion_tokens": 1})).accept_length == 10 / 3


@pytest.mark.parametrize(("completion", "uncounted"), [(0, 0), (1, 0), (2, 2), (3, 3)])
def test_without_a_step_count_all_but_the_prefills_id_is_uncounted(completion: int, uncounted: int) -> None:
    assert read_spec({"completion_tokens": completion}).uncounted_token_num == uncounted


@pytest.mark.parametrize("value", [-1, "3", 1.5, True, [1]])
@pytest.mark.parametrize("name", ["spec_num_correct_drafts", "spec_verify_ct", "completion_tokens"])
def test_wrong_counter_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(AssemblyError, match=name):
        read_spec({name: value})


def test_prefix_cache_needs_both_counters() -> None:
    assert read_prefix_cache({"prompt_tokens": 9}) == PrefixCacheInfo()
    assert read_prefix_cache({"prompt_tokens": 9, "cached_tokens": 4}).hit_rate == 4 / 9


@given(st.lists(infos))
def test_sums_are_field_by_field(many: list[SpecInfo]) -> None:
    total = sum(many, SpecInfo())
    for name in SpecInfo.__dataclass_fields__:
        assert getattr(total, name) == sum(getattr(info, name) for info in many)


@given(infos)
def test_dict_round_trip(info: SpecInfo) -> None:
    assert SpecInfo.from_dict(info.to_dict()) == info


def test_unknown_counter_is_refused_by_name() -> None:
    with pytest.raises(AssemblyError, match=r"spec_info\.speed"):
        SpecInfo.from_dict({"speed": 1})
