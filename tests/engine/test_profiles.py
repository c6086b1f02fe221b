"""Profiles are complete, typed data; the tables are what the releases' own front ends answered."""

from collections.abc import Callable
from typing import Any

import pytest

from miles_sim.document import DocumentError, read
from miles_sim.engine import profiles
from miles_sim.engine.engine import Engine

PROFILES = ("miles-rl-0.0.2", "sglang-0.5.10", "sglang-0.5.16")

# The releases' answers to `/generate`, but for cached_tokens_details, which a whole server always sends.
_OLD = "id,finish_reason,prompt_tokens,weight_version,total_retractions,"
_NEW = "id,finish_reason,prompt_tokens,weight_version,num_retractions,"
_LOGPROBS = "input_token_logprobs,output_token_logprobs,output_token_logprobs_length,"
_MIDDLE = "reasoning_tokens,completion_tokens,cached_tokens,cached_tokens_details,dp_rank,e2e_latency,"
_OLD_SPEC = (
    "spec_accept_rate,spec_accept_length,spec_accept_token_num,spec_draft_token_num,spec_verify_ct,"
    "spec_accept_histogram,"
)
_NEW_SPEC = (
    "spec_accept_rate,spec_accept_length,spec_num_correct_drafts,spec_num_proposed_drafts,spec_verify_ct,"
    "spec_accepted_drafts,spec_proposed_drafts,spec_correct_drafts_histogram,spec_accept_histogram,"
)
_END = "response_sent_to_client_ts"
HEAD = {"sglang-0.5.10": _OLD, "miles-rl-0.0.2": _OLD, "sglang-0.5.16": _NEW}
SPEC = {"sglang-0.5.10": _OLD_SPEC, "miles-rl-0.0.2": _OLD_SPEC, "sglang-0.5.16": _NEW_SPEC}


def test_the_known_profiles_are_listed() -> None:
    assert profiles.names() == PROFILES


def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(profiles.ProfileError, match=r"'sglang-9' is none of miles-rl-0\.0\.2, sglang-0\.5\.10"):
        profiles.load("sglang-9")


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize("speculative", [False, True])
def test_meta_info_has_the_releases_keys_in_its_order(name: str, logprobs: bool, speculative: bool) -> None:
    expected = HEAD[name] + _LOGPROBS * logprobs + _MIDDLE + SPEC[name] * speculative + _END
    assert [key for key, _ in profiles.load(name).layouts[logprobs, speculative]] == expected.split(",")


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_says_where_its_facts_come_from(name: str) -> None:
    assert "wheel" in profiles.load(name).source


@pytest.mark.parametrize("name", ["miles-rl-0.0.2", "sglang-0.5.16"])
def test_an_engine_sends_exactly_those_keys_with_those_types(
    name: str, make_engine: Callable[..., Engine], ask: Callable[..., dict[str, Any]]
) -> None:
    engine = make_engine(profile=name, speculative={})
    kinds = {"str": str, "int": int, "float": float, "list": list, "object": dict}
    first = ask(engine)
    more = ask(engine)  # asked before: cached_tokens_details is an object
    for answer in (first, more):
        meta = answer["choices"][0]["meta_info"]
        declared = engine.profile.meta_info
        assert list(meta) == [entry.key for entry in declared]
        for entry in declared:
            value, kind = meta[entry.key], entry.type
            assert type(value) is kinds[kind.rstrip("?")] or (kind.endswith("?") and value is None), entry.key


def test_a_broken_profile_is_refused_by_place() -> None:
    with pytest.raises(DocumentError, match=r"wire: meta_info\[0\]\.type"):
        read(profiles.Profile, {"meta_info": [{"key": "id", "type": "text"}]}, name="wire")
