"""Thoughts are told from content as each release's parsers do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miles_sim.engine.formats import Dialect, dialect
from miles_sim.engine.reasoning import PARSERS, ReasoningStream, Thought, parse

OLD = dialect("0.5.10")
SILENT: dict[str, object] = {"enable_thinking": False, "thinking": False}


@pytest.mark.parametrize("parser", PARSERS)
def test_a_closed_thought_and_the_content_behind_it(parser: str) -> None:
    text = "<think>\nhm\n</think>\n\nYes."
    assert parse(text, parser, Dialect()) == Thought("\nhm\n", "\n\nYes.")
    assert parse(text, parser, OLD) == Thought("hm\n", "Yes.")


@pytest.mark.parametrize("parser", PARSERS)
def test_without_a_closing_tag_all_is_thought_even_without_an_opening_one(parser: str) -> None:
    assert parse("Yes, I think.", parser, Dialect()) == Thought("Yes, I think.")


@pytest.mark.parametrize("parser", ["qwen3", "glm45", "kimi_k2"])
def test_a_request_that_turns_thinking_off_gets_content(parser: str) -> None:
    assert parse("Yes.", parser, Dialect(), SILENT) == Thought(text="Yes.")
    assert parse("<think>a</think>b", parser, Dialect(), SILENT) == Thought("a", "b")


@pytest.mark.parametrize("parser", ["qwen3-thinking", "deepseek-r1"])
def test_some_models_always_think(parser: str) -> None:
    assert parse("Yes.", parser, Dialect(), SILENT) == Thought("Yes.")


@pytest.mark.parametrize(
    ("parser", "call", "since"),
    [
        ("qwen3", "<tool_call>", "0.5.16"),
        ("glm45", "<tool_call>", "0.5.10"),
        ("kimi_k2", "<|tool_calls_section_begin|>", "0.5.10"),
    ],
)
def test_a_call_ends_a_thought_that_was_left_open(parser: str, call: str, since: str) -> None:
    text = f"<think>hm{call}…"
    assert parse(text, parser, dialect(since)) == Thought("hm", f"{call}…")
    assert parse(text, parser, dialect("0.5.6")) == Thought(f"hm{call}…")


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("release", ["0.5.13", "0.5.16", "0.5.23"])
@settings(max_examples=25, deadline=None)
@given(thought=st.text(alphabet="ab <\n", max_size=8), said=st.text(alphabet="ab <\n", max_size=8))
def test_a_stream_of_characters_says_the_same(parser: str, release: str, thought: str, said: str) -> None:
    if release != "0.5.23" and "<" in thought:
        return  # these let out the beginning of a tag that stands behind anything else
    text = f"<think>{thought}</think>{said}"
    chunks = list(text) if release == "0.5.23" else ["<think>", *thought, "</think>", *said]
    stream = ReasoningStream(parser, dialect(release))
    pieces = [stream.push(chunk) for chunk in chunks]
    whole = Thought("".join(p.reasoning for p in pieces), "".join(p.text for p in pieces))
    held = text[len(text) - len(stream._buffer) :]
    assert Thought(whole.reasoning, whole.text + held) == parse(text, parser, dialect(release))


@pytest.mark.parametrize(("release", "thought"), [("0.5.16", "<think>ab"), ("0.5.23", "ab")])
def test_a_thought_can_be_kept_until_it_is_whole(release: str, thought: str) -> None:
    stream = ReasoningStream("qwen3", dialect(release))
    pieces = [stream.push(chunk, whole=True) for chunk in ("<think>", "a", "b", "</think>", "c")]
    assert pieces == [Thought(), Thought(), Thought(), Thought(thought), Thought(text="c")]
