"""What the model says: matched by content, spelled as its family spells it, in ids that only a model samples."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.engine.replies import draft, reply_for, seeded_text
from miles_sim.engine.seeding import Stream
from miles_sim.reply import Reply, ReplyRule, ToolCall
from miles_sim.tokenizer import FIRST_PIECE, FIRST_SPACED_PIECE, ByteTokenizer

TOKENIZER = ByteTokenizer()
A, B, DEFAULT = Reply(text="a"), Reply(text="b"), Reply(text="default")


def stream(seed: int) -> Stream:
    return Stream(b"%d" % seed, "text")


def test_the_first_rule_that_matches_wins() -> None:
    rules = (ReplyRule(contains="[1]", reply=A), ReplyRule(contains="[", reply=B))
    assert reply_for("see [1]", 0, rules, DEFAULT) is rules[0].reply
    assert reply_for("see [2]", 0, rules, DEFAULT) is rules[1].reply
    assert reply_for("see", 0, rules, DEFAULT) is DEFAULT


def test_a_rule_may_hold_for_one_attempt_only() -> None:
    rules = (ReplyRule(contains="x", attempt=1, reply=A), ReplyRule(contains="x", reply=B))
    assert [reply_for("x", n, rules, DEFAULT).text for n in range(3)] == ["b", "a", "b"]


@given(count=st.integers(0, 200), seed=st.integers(0, 1_000))
def test_seeded_text_has_the_asked_length_and_no_white_space_at_its_ends(count: int, seed: int) -> None:
    ids = seeded_text(stream(seed), count)
    text = TOKENIZER.decode(ids)
    assert len(ids) == count
    assert text == text.strip()
    assert "�" not in text
    assert not ids or FIRST_PIECE <= ids[0] < FIRST_SPACED_PIECE


@given(count=st.integers(0, 200), limit=st.integers(0, 200), seed=st.integers(0, 1_000))
def test_a_limit_only_leaves_off_the_end(count: int, limit: int, seed: int) -> None:
    part, whole = seeded_text(stream(seed), count, limit=limit), seeded_text(stream(seed), count)
    assert part == whole[: min(count, limit)]


def test_sampled_text_encodes_to_other_ids_and_has_all_kinds_of_them() -> None:
    ids = seeded_text(stream(1), 400)
    assert TOKENIZER.encode(TOKENIZER.decode(ids)) != ids
    assert any(i >= 128 for i in ids if i < 256), "characters of several bytes"
    assert set(ids) & set(b",;:."), "punctuation"


@pytest.mark.parametrize("family", ["chatml", "delimiter"])
@pytest.mark.parametrize("text", [None, "", "Let me look."])
def test_a_reply_with_calls_is_what_the_template_renders_for_it(family: str, text: str | None) -> None:
    tokenizer = ByteTokenizer(family)
    calls = (ToolCall(name="look", arguments={"at": 'naïve "x"', "n": [1, None]}), ToolCall(name="go"))
    ids = draft(Reply(text=text, tool_calls=calls), tokenizer, Random(0), limit=10_000)
    assert ids[-1] == tokenizer.call_stop_id
    content = tokenizer.decode(ids[:-1]).split("<tool_call>")[0].removesuffix("\n")
    history = [
        {"role": "assistant", "content": content, "tool_calls": [{"function": call.model_dump()} for call in calls]}
    ]
    rendered = tokenizer.render_text(history, add_generation_prompt=False)
    assert tokenizer.decode(ids[:-1]) in rendered


def test_a_plain_reply_ends_with_the_text_stop() -> None:
    tokenizer = ByteTokenizer("delimiter")
    assert draft(A, tokenizer, Random(0), limit=10) == [ord("a"), tokenizer.text_stop_id]
