"""Each family's template writes a reply as it was sampled, and reads like the model cards' own."""

from random import Random
from typing import Any

import pytest

from miles_sim.engine import reasoning
from miles_sim.engine.formats import FORMATS, dialect
from miles_sim.engine.formats.kimi import call_id
from miles_sim.engine.replies import draft
from miles_sim.families import FAMILIES
from miles_sim.reply import Reply, ToolCall
from miles_sim.tokenizer import ByteTokenizer, TokenizerError

THINKING = sorted(name for name, family in FAMILIES.items() if family.reasoning_format)
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}]
CALLS = (ToolCall(name="run", arguments={"path": 'a "b"', "deep": {"n": [1, None]}}), ToolCall(name="run"))
ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go on."}]
REPLIES = {
    "text": Reply(reasoning=4, tokens=6),
    "silent thought": Reply(tokens=6),
    "exact": Reply(reasoning="so\nit is", text="Yes:\n\n1. é🙂"),
    "calls": Reply(reasoning=3, tokens=4, tool_calls=CALLS),
    "calls alone": Reply(tokens=0, tool_calls=CALLS),
}


def message_of(text: str, family: str, release: str) -> dict[str, Any]:
    """The message that a client gets of a reply's text."""
    kind = FAMILIES[family]
    found = reasoning.parse(text, kind.reasoning_format or "", dialect(release))
    message: dict[str, Any] = {"role": "assistant", "content": found.text, "reasoning_content": found.reasoning}
    format = FORMATS[kind.tool_format]
    if format.marker in found.text:
        parsed = format.parse(found.text, TOOLS, dialect(release))
        message["content"] = parsed.text
        message["tool_calls"] = [
            {
                "id": call_id(call.name, number),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for number, call in enumerate(parsed.calls)
        ]
    return message


@pytest.mark.parametrize("release", ["0.5.10", "0.5.16", "0.5.23"])
@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("family", THINKING)
def test_a_reply_that_went_through_the_parsers_is_rendered_as_it_was_sampled(
    family: str, reply: str, release: str
) -> None:
    tokenizer = ByteTokenizer(family)
    prompt = tokenizer.render(ASKED, tools=TOOLS)
    sampled = draft(REPLIES[reply], tokenizer, Random(1), limit=1000, prompt_ids=prompt)
    text = tokenizer.decode(sampled[:-1])
    again = tokenizer.render([*ASKED, message_of(text, family, release)], tools=TOOLS, add_generation_prompt=False)
    stop = [] if tokenizer.max_trim_tokens else [sampled[-1]]
    assert tokenizer.decode(again) == tokenizer.decode([*prompt, *sampled[:-1], *stop])


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_special_tokens_and_marks_are_single_ids(family: str) -> None:
    tokenizer = ByteTokenizer(family)
    specials, marks = FAMILIES[family].specials, FAMILIES[family].marks
    assert [len(tokenizer.encode(text)) for text in (*specials, *marks)] == [1] * len(specials + marks)
    text = "".join(f"a{token}<|b|>[" for token in (*specials, *marks))
    assert tokenizer.decode(tokenizer.encode(text)) == text
    kept = tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True)
    assert all(mark in kept for mark in marks)
    assert not any(special in kept for special in specials)


@pytest.mark.parametrize("family", THINKING)
def test_thinking_can_be_turned_off_in_the_prompt(family: str) -> None:
    tokenizer = ByteTokenizer(family)
    options = {"enable_thinking": False, "thinking": False}
    prompt = tokenizer.render(ASKED, template_options=options)
    loud = draft(Reply(tokens=3), tokenizer, Random(1), limit=99, prompt_ids=tokenizer.render(ASKED))
    quiet = draft(Reply(tokens=3), tokenizer, Random(1), limit=99, prompt_ids=prompt)
    assert tokenizer.decode([*prompt, *quiet]) == tokenizer.decode([*tokenizer.render(ASKED), *loud])


@pytest.mark.parametrize("family", THINKING)
def test_content_with_its_own_thought_is_given_no_other(family: str) -> None:
    opening, closing = FAMILIES[family].think
    said = f"{opening}hm{closing}Yes."
    text = ByteTokenizer(family).render_text([{"role": "assistant", "content": said}], add_generation_prompt=False)
    assert text.count("<think>") == 1
    assert said in text


def test_arguments_that_are_no_object_are_refused_where_the_template_goes_through_them() -> None:
    message = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "7"}}]}
    with pytest.raises(TokenizerError, match=r"messages\[0\]\.tool_calls\[\]\.function\.arguments: '7' is not"):
        ByteTokenizer("glm").render([message])


@pytest.mark.parametrize("before", [0, 3])
def test_kimi_counts_calls_through_the_conversation(before: int) -> None:
    tokenizer = ByteTokenizer("kimi")
    prompt = tokenizer.encode("<|tool_call_begin|>" * before)
    text = tokenizer.decode(draft(Reply(tool_calls=CALLS), tokenizer, Random(1), limit=99, prompt_ids=prompt))
    assert f"functions.run:{before}<" in text
    assert f"functions.run:{before + 1}<" in text


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_what_is_rendered_again_is_the_same_and_ones_own(family: str) -> None:
    tokenizer = ByteTokenizer(family)
    first = tokenizer.render(ASKED)
    wanted = list(first)
    first.clear()
    assert tokenizer.render(ASKED) == wanted == tokenizer.encode(tokenizer.render_text(ASKED))
    assert tokenizer.render(ASKED, add_generation_prompt=False) != wanted
    assert tokenizer.render(ASKED[1:]) != wanted


def test_only_the_latest_renderings_are_kept() -> None:
    tokenizer = ByteTokenizer()
    for number in range(1000):
        tokenizer.render([{"role": "user", "content": f"{number}"}])
    tokenizer.render([{"role": "user", "content": "long " * 10_000}])
    assert sum(map(len, tokenizer._rendered.values())) < 10_000
