"""Settings: what is set where nothing is said, and what is refused by name."""

import math
from dataclasses import asdict
from typing import Any

import pytest

from miles_sim.rollout.errors import SettingsError
from miles_sim.rollout.settings import RolloutSettings


def test_what_is_not_said_is_as_documented() -> None:
    """Users rely on these: one that changes is noticed here."""
    assert asdict(RolloutSettings()) == {
        "session": "v2",
        "identity": "always",
        "speculative_algorithm": None,
        "max_seq_len": None,
        "message_matcher": "strict",
        "sample_picker": "drop_retries",
        "sample_postprocessor": "default",
        "tools_change": "branch",
        "template_options": {},
        "lora_path": None,
        "max_nodes": 1024,
        "session_idle_timeout": None,
        "max_body_bytes": 67_108_864,
        "request_timeout": 600.0,
        "collect_timeout": 120.0,
        "collect_tries": 3,
        "routing_replay": False,
        "replay_rows": "whole",
        "routed_experts_layers": 1,
        "indexer_replay": False,
        "record_messages": False,
    }


WHOLE = ("max_seq_len", "max_nodes", "max_body_bytes", "routed_experts_layers", "collect_tries")
SECONDS = ("session_idle_timeout", "request_timeout", "collect_timeout")
OPTIONAL = ("max_seq_len", "session_idle_timeout")


@pytest.mark.parametrize("name", WHOLE)
def test_counts_are_whole_numbers_of_at_least_one(name: str) -> None:
    assert getattr(RolloutSettings(**{name: 1}), name) == 1
    for value in (0, -1, 1.0, True, "1"):
        with pytest.raises(SettingsError, match=rf"^{name}: {value!r} is not a whole number of at least 1$"):
            RolloutSettings(**{name: value})


@pytest.mark.parametrize("name", SECONDS)
def test_durations_are_seconds_above_zero(name: str) -> None:
    for value in (1, 0.5):
        assert getattr(RolloutSettings(**{name: value}), name) == value
    for bad in (0, 0.0, -1, True, "1", math.inf, math.nan):
        with pytest.raises(SettingsError, match=rf"^{name}: {bad!r} is not a number of seconds above 0$"):
            RolloutSettings(**{name: bad})


@pytest.mark.parametrize("name", [*WHOLE, *SECONDS])
def test_none_is_no_limit_where_there_may_be_none(name: str) -> None:
    if name in OPTIONAL:
        assert getattr(RolloutSettings(**{name: None}), name) is None
    else:
        with pytest.raises(SettingsError, match=f"{name}: None"):
            RolloutSettings(**{name: None})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("session", ["v1", "v2"]),
        ("identity", ["always", "several_leaves"]),
        ("tools_change", ["branch", "keep"]),
        ("replay_rows", ["whole", "additional"]),
    ],
)
def test_a_choice_is_one_of_the_words_for_it(name: str, words: list[str]) -> None:
    for word in words:
        assert getattr(RolloutSettings(**{name: word}), name) == word  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=rf"^{name}: 'other' is not {' or '.join(map(repr, words))}$"):
        RolloutSettings(**{name: "other"})  # type: ignore[arg-type]


def test_template_options_are_a_mapping() -> None:
    odd: Any = [1]
    with pytest.raises(SettingsError, match=r"^template_options: \[1\] is not a mapping$"):
        RolloutSettings(template_options=odd)


@pytest.mark.parametrize("name", ["routing_replay", "indexer_replay", "record_messages"])
def test_switches_are_true_or_false(name: str) -> None:
    assert getattr(RolloutSettings(**{name: True}), name) is True
    for value in ("no", 0, 1, None):
        with pytest.raises(SettingsError, match=rf"^{name}: {value!r} is not True or False$"):
            RolloutSettings(**{name: value})


@pytest.mark.parametrize("name", ["speculative_algorithm", "lora_path"])
def test_names_are_strings_or_none(name: str) -> None:
    for fine in ("x", None):
        assert getattr(RolloutSettings(**{name: fine}), name) == fine
    for value in (5, True, b"x"):
        with pytest.raises(SettingsError, match=rf"^{name}: {value!r} is not None or a string$"):
            RolloutSettings(**{name: value})


@pytest.mark.parametrize("name", ["message_matcher", "sample_picker", "sample_postprocessor"])
def test_functions_are_names_paths_or_callable(name: str) -> None:
    for fine in ("some.path:fn", len):
        assert getattr(RolloutSettings(**{name: fine}), name) == fine
    for value in (3, None, True):
        with pytest.raises(SettingsError, match=rf"^{name}: {value!r} is not a name, a dotted path or a function$"):
            RolloutSettings(**{name: value})
