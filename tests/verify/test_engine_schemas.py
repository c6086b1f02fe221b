"""Schemas of the engine's answers are the profiles', key by key."""

import pytest

from miles_sim.engine import profiles
from miles_sim.verify.engine_schemas import CHAT, GENERATE, counted_keys, meta_info, response_schema
from miles_sim.verify.schemas import entry, names, schema, version


@pytest.mark.parametrize("profile", profiles.names())
def test_a_schema_has_the_keys_of_its_profile_and_no_others(profile: str) -> None:
    wire = profiles.load(profile)
    chat, direct = response_schema(profile, CHAT), response_schema(profile, GENERATE)
    assert tuple(chat["properties"]) == wire.chat.response
    assert tuple(direct["properties"]) == wire.generate.body
    told = direct["properties"]["meta_info"]
    assert list(told["properties"]) == [key.key for key in wire.meta_info]
    assert not chat["additionalProperties"]
    assert {"id", "finish_reason"} <= set(told["required"])


def test_counters_stand_under_the_names_of_their_release() -> None:
    new, old = counted_keys("sglang-0.5.16"), counted_keys("miles-rl-0.0.2")
    assert (new["spec_accepted_drafts"], new["spec_proposed_drafts"]) == ("accepted", "drafted")
    assert {value for key, value in old.items() if key.startswith("spec_")} >= {"accepted", "drafted", "verify_ct"}


def test_meta_info_is_found_where_the_endpoint_has_it() -> None:
    assert meta_info(GENERATE, {"meta_info": {"id": "a"}}) == {"id": "a"}
    assert meta_info(CHAT, {"choices": [{"meta_info": {"id": "a"}}]}) == {"id": "a"}
    assert meta_info(CHAT, {"choices": []}) is None


def test_words_do_not_change_a_schema_and_fields_do(monkeypatch: pytest.MonkeyPatch) -> None:
    before = entry("digest")
    shape = schema("digest")
    told = {**shape, "description": "other words", "properties": dict(shape["properties"])}
    monkeypatch.setattr("miles_sim.verify.schemas.schema", lambda name: told)
    assert entry("digest") == before
    told["properties"]["description"] = {"type": "string"}
    assert entry("digest") != before


def test_every_document_says_its_name_and_version() -> None:
    assert [schema(name)["$id"] for name in names()] == [f"miles-sim/{name}/{version(name)}" for name in names()]
    with pytest.raises(KeyError, match="'nonsense' is none of"):
        schema("nonsense")
