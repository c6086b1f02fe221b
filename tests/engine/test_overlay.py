"""A document that says only its differences changes what they name and keeps the rest, order included."""

import pytest

from miles_sim.engine.overlay import OverlayError, overlay

BASE = {"a": 1, "b": {"c": [1, 2], "d": "x"}, "keys": ["one", "two", "three"], "rows": [{"key": "p"}, {"key": "q"}]}


def test_what_is_not_named_stays() -> None:
    assert overlay(BASE, {}) == BASE


def test_mappings_change_key_by_key() -> None:
    changed = overlay(BASE, {"b": {"d": "y"}, "new": 3})
    assert changed == BASE | {"b": {"c": [1, 2], "d": "y"}, "new": 3}
    assert list(changed) == [*BASE, "new"]


def test_a_list_in_place_of_a_list_replaces_it() -> None:
    assert overlay(BASE, {"keys": ["four"]})["keys"] == ["four"]


def test_lists_are_changed_by_name() -> None:
    changes = {"drop": ["one"], "set": {"two": "TWO"}, "after": {"two": ["2.5"]}, "add": ["end"]}
    assert overlay(BASE, {"keys": changes})["keys"] == ["TWO", "2.5", "three", "end"]


def test_entries_that_are_mappings_are_named_by_their_key() -> None:
    changes = {"set": {"p": {"key": "P"}}, "after": {"q": [{"key": "r"}]}}
    assert overlay(BASE, {"rows": changes})["rows"] == [{"key": "P"}, {"key": "q"}, {"key": "r"}]


@pytest.mark.parametrize("changes", [{"drop": ["four"]}, {"set": {"four": "x"}}, {"after": {"four": ["x"]}}])
def test_a_name_that_the_list_lacks_is_refused_with_those_it_has(changes: dict[str, object]) -> None:
    with pytest.raises(OverlayError, match=r"document\.keys.*'four' is none of one, two, three"):
        overlay(BASE, {"keys": changes})
