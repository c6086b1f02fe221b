import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.errors import MatcherError
from miles_sim.rollout.session.matching import ComparingMatcher, resolve, same_reply, tools_key

ARGUMENTS = st.dictionaries(
    st.text(max_size=3),
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-2, 2) | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
        max_leaves=4,
    ),
    max_size=3,
)


def call(arguments: Any, **extra: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}, **extra}],
    }


@pytest.mark.parametrize("name", ["strict", "loose_tool_call", "role_content_only"])
def test_spellings_of_nothing_and_a_clients_own_fields_make_no_difference(name: str) -> None:
    matcher = resolve(name)
    stored = {"role": "assistant", "content": "", "reasoning_content": None, "tool_calls": []}
    assert matcher.same(stored, {"role": "assistant", "content": None, "provider_specific_fields": {"x": [1]}})
    assert not matcher.same(stored, {"role": "assistant", "content": " "})
    assert not matcher.same(stored, {"role": "user", "content": ""})


def test_the_index_of_a_tool_call_is_never_compared() -> None:
    for name in ("strict", "loose_tool_call"):
        assert resolve(name).same(call("{}", index=0), call("{}"))
        assert not resolve(name).same(call("{}"), {**call("{}"), "reasoning_content": "hm"})


def test_a_reply_is_known_by_who_said_it_and_what_was_said() -> None:
    said = {"role": "assistant", "content": "yes"}
    assert same_reply(said, {**said, "reasoning_content": "hm"})
    for other in ({**said, "content": "no"}, {**said, "role": "user"}, {**said, "tool_calls": [{"id": "c"}]}):
        assert not same_reply(said, other)


def test_no_list_of_tools_is_an_empty_one() -> None:
    assert tools_key(None) == tools_key([]) == b"" != tools_key([{"type": "function"}])


def test_calls_that_are_no_list_are_told_apart_too() -> None:
    odd, other = ({**call("{}"), "tool_calls": {"name": name}} for name in "fg")
    for name in ("strict", "loose_tool_call"):
        assert resolve(name).same(odd, dict(odd))
        assert not resolve(name).same(odd, other)


@given(ARGUMENTS)
def test_loose_tool_call_accepts_arguments_in_any_spelling(arguments: dict[str, Any]) -> None:
    loose = resolve("loose_tool_call")
    backwards = dict(reversed(arguments.items()))
    spelt = call(json.dumps(arguments))
    assert loose.same(spelt, call(json.dumps(backwards, indent=2)))
    assert loose.same(spelt, call(arguments))


@given(ARGUMENTS, ARGUMENTS)
def test_loose_tool_call_still_tells_other_arguments_apart(left: dict[str, Any], right: dict[str, Any]) -> None:
    same = resolve("loose_tool_call").same(call(json.dumps(left)), call(json.dumps(right)))
    assert same == (_tagged(left) == _tagged(right))


def _tagged(value: Any) -> Any:
    """JSON equality spelt out: true is not 1, and -0.0, 0 and 0.0 are one number."""
    if isinstance(value, dict):
        return {key: _tagged(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_tagged(item) for item in value]
    return (isinstance(value, bool), value)


@pytest.mark.parametrize("arguments", ["{", "[1]", '{"a": 1, "a": 2}', '{"a": NaN}', "[" * 100_000])
def test_arguments_that_spell_no_object_match_only_themselves(arguments: str) -> None:
    loose = resolve("loose_tool_call")
    assert loose.same(call(arguments), call(arguments))
    assert not loose.same(call(arguments), call(arguments + " "))


def test_strict_keeps_apart_what_a_template_would_render_otherwise() -> None:
    strict = resolve("strict")
    assert not strict.same(call('{"a":1}'), call('{"a": 1}'))
    assert not strict.same(call({"a": True}), call({"a": 1}))


def test_nothing_but_arguments_is_compared_by_what_it_spells() -> None:
    loose = resolve("loose_tool_call")
    left, right = call("{}"), call("{}")
    left["tool_calls"][0]["function"]["name"], right["tool_calls"][0]["function"]["name"] = '{"a":1}', '{"a": 1}'
    assert not loose.same(left, right)
    left, right = call("{}", type='{"a":1}'), call("{}", type='{"a": 1}')
    assert not loose.same(left, right)


def test_numbers_of_any_length_are_compared_by_value() -> None:
    loose = resolve("loose_tool_call")
    long = "1" * 5000
    assert loose.same(call(f'{{"a":{long}}}'), call(f'{{"a": {long}.0}}'))
    assert not loose.same(call(f'{{"a":{long}}}'), call(f'{{"a": {long}1}}'))


def test_role_content_only_takes_no_notice_of_tool_calls() -> None:
    assert resolve("role_content_only").same(call("{}"), {"role": "assistant", "content": ""})


def test_an_own_matcher_that_raises_or_gives_no_bool_is_named() -> None:
    def broken(stored: dict[str, Any], replayed: dict[str, Any]) -> bool:
        raise KeyError("role")

    with pytest.raises(MatcherError, match=r"broken raised KeyError"):
        resolve(broken).same({}, {})
    with pytest.raises(MatcherError, match=r"functools\.partial\(.*broken.* raised KeyError: 'role'"):
        resolve(partial(broken)).same({}, {})
    with pytest.raises(MatcherError, match=r"gave int, not a bool"):
        resolve(lambda stored, replayed: 1).same({}, {})  # type: ignore[arg-type, return-value]


def test_an_own_matcher_cannot_change_the_stored_message() -> None:
    stored = {"role": "user"}

    def meddling(mine: dict[str, Any], replayed: dict[str, Any]) -> bool:
        mine.clear()
        return True

    assert resolve(meddling).same(stored, {})
    assert stored == {"role": "user"}


@pytest.mark.parametrize("setting", ["loose", "no.such.module", "json.nothing", "json.__doc__"])
def test_a_matcher_that_cannot_be_had_is_refused_by_name(setting: str) -> None:
    with pytest.raises(ValueError, match=f"message_matcher: .*{setting}"):
        resolve(setting)


def test_an_asynchronous_matcher_is_refused() -> None:
    async def later(stored: dict[str, Any], replayed: dict[str, Any]) -> bool:
        return True

    with pytest.raises(ValueError, match="plain function"):
        resolve(later)  # type: ignore[arg-type]


def test_a_dotted_path_gives_the_function() -> None:
    matcher = resolve("operator.eq")
    assert isinstance(matcher, ComparingMatcher)
    assert matcher.same({"a": 1}, {"a": 1})


@pytest.mark.parametrize("nothing", [None, "", "{}", " {} ", {}])
def test_loose_tool_call_takes_all_spellings_of_no_arguments_for_one(nothing: Any) -> None:
    loose = resolve("loose_tool_call")
    assert loose.same(call("{}"), call(nothing))
    assert not loose.same(call('{"a": 1}'), call(nothing))
