"""A reply is read as thought, content and calls; a stream of it says the same, held back as the release does."""

from typing import Any

import pytest

from miles_sim.engine import profiles
from miles_sim.engine.request import ChatRequest
from miles_sim.engine.said import Reader, Said, reader_of

PROFILES = profiles.names()
STOP = {"type": "stop", "matched": 3}
TOOLS = [{"type": "function", "function": {"name": "look"}}]
CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'


def reader(profile: str = "sglang-0.5.16", **fields: Any) -> Reader:
    asked = ChatRequest.model_validate({"messages": [{"role": "user", "content": "hi"}], **fields})
    return reader_of(asked, profiles.load(profile), tool_parser="qwen25", reasoning_parser="qwen3")


def streamed(how: Reader, text: str) -> tuple[str, str, list[str]]:
    stream, said = how.stream(), []
    for n, character in enumerate(text):
        said.append(stream.push(character, last=n == len(text) - 1))
    names = [call.name for one in said for call in one.calls if call.name]
    return "".join(one.thought for one in said), "".join(one.text for one in said), names


@pytest.mark.parametrize("profile", PROFILES)
def test_thought_content_and_calls_are_told_apart(profile: str) -> None:
    how = reader(profile, tools=TOOLS)
    said = how.read("<think>\nhm\n</think>\n\nyes" + CALL, STOP)
    assert (said.thought.strip(), said.text.strip()) == ("hm", "yes")
    assert said.calls is not None
    assert said.calls[0].name == "look"
    assert said.reason == {"type": "tool_calls", "matched": None}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_stream_says_the_same(profile: str) -> None:
    thought, text, names = streamed(reader(profile, tools=TOOLS), "<think>\nhm\n</think>\n\nyes\n" + CALL)
    assert (thought.strip(), text.strip(), names) == ("hm", "yes", ["look"])


def test_without_separate_reasoning_the_thought_stays_text() -> None:
    text = "<think>hm</think>yes"
    assert reader(separate_reasoning=False).read(text, STOP) == Said(text, STOP)


@pytest.mark.parametrize("profile", PROFILES)
def test_what_may_be_a_tag_is_held_back_for_ever_before_0_5_20(profile: str) -> None:
    number = 10 if profile.startswith("miles") else int(profile.rpartition(".")[2])
    thought, text, _ = streamed(reader(profile), "<think>hm</think>a<")
    assert thought == "hm"
    assert text == ("a<" if number >= 20 else "a")


def test_a_thought_kept_whole_is_told_when_the_reply_is_over_from_0_5_20_on() -> None:
    for profile, told in (("sglang-0.5.16", ""), ("sglang-0.5.20", "hm")):
        assert streamed(reader(profile, stream_reasoning=False), "<think>hm")[0] == told
