"""What the engine is asked with, what of a history is known, and what is cut: conversations that drift."""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from miles_sim.rollout import assembly, collect
from miles_sim.rollout.errors import MessageValidationError
from miles_sim.rollout.sample import Sample
from miles_sim.rollout.session import server
from miles_sim.rollout.session.chat import ChatRequest
from miles_sim.rollout.session.linear import LinearConversation
from miles_sim.tokenizer import ByteTokenizer, ChatTokenizer

from .defect import after_joining, defect, put


@defect("linear/v2", "tokens/prompt-canonical")
def messages_are_rendered_behind_a_stub(m: pytest.MonkeyPatch) -> None:
    """miles before PRs #949, #1712 and #2202: a stray boundary token stands before each appended message."""
    extend = ByteTokenizer.extend

    def stray(self: ByteTokenizer, ids: Sequence[int], *arguments: Any, **keywords: Any) -> list[int]:
        right = extend(self, ids, *arguments, **keywords)
        return [*right[: len(ids)], *self.encode("\n"), *right[len(ids) :]]

    m.setattr(ByteTokenizer, "extend", stray)


@defect("linear/v2", "session/requests-served")
def a_user_may_not_follow_a_reply(m: pytest.MonkeyPatch) -> None:
    """miles before PR #858: only a tool's message may be appended."""
    _refuse(m, lambda asked: ("assistant", "user") in pairwise([message["role"] for message in asked]))


@defect("misbehave-json-replayed/v2", "session/requests-served")
def malformed_arguments_cannot_be_replayed(m: pytest.MonkeyPatch) -> None:
    """miles of August 2026: a call whose arguments are no JSON makes every later request of its session fail."""

    def malformed(messages: Sequence[Mapping[str, Any]]) -> bool:
        calls = [call for message in messages for call in message.get("tool_calls") or ()]
        return not all(_is_json(call["function"]["arguments"]) for call in calls)

    _refuse(m, malformed)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _refuse(m: pytest.MonkeyPatch, wrong: Any) -> None:
    read = server.read_chat

    def picky(*arguments: Any) -> ChatRequest:
        asked = read(*arguments)
        if wrong(asked.messages):
            raise MessageValidationError("messages: not supported")
        return asked

    m.setattr(server, "read_chat", picky)


@defect("linear/v1", "tokens/trainable-exactly-once")
def what_is_not_replayed_to_the_letter_is_forgotten(m: pytest.MonkeyPatch) -> None:
    """miles of August 2026, v1: a client that leaves reasoning out takes back all turns but the last, under 200."""
    m.setattr(LinearConversation, "_kept", lambda self, messages: 0)


@defect("linear/v1", "tokens/trainable-exactly-once")
def an_answer_is_not_recorded(m: pytest.MonkeyPatch) -> None:
    """miles v1: of two requests under way the later commit is skipped, and the agent goes on from its answer."""
    commit = LinearConversation.commit

    def first_alone(self: LinearConversation, *arguments: Any, **keywords: Any) -> Any:
        before = list(self._commits)
        made = commit(self, *arguments, **keywords)
        if len(before) == 1:
            self._commits[:] = before
        return made

    m.setattr(LinearConversation, "commit", first_alone)


@defect("max-seq-len-turn/v2", "tokens/truncation-at-turn")
def no_length_limit_is_looked_at(m: pytest.MonkeyPatch) -> None:
    """miles before PR #785: rows of several turns are as long as they come."""
    m.setattr(assembly, "_cut", lambda turns, last, limit: turns)


@defect("max-seq-len-turn/v2", "tokens/dropped-told")
def what_is_cut_off_is_not_counted(m: pytest.MonkeyPatch) -> None:
    """miles merge_samples, truncate_samples_by_total_tokens: later turns go without a word (PR #1323)."""
    m.setattr(assembly, "_dropped", lambda turns: {})


@defect("linear/v1", "tokens/prompt-is-what-the-engine-got")
def ones_are_counted_for_a_length(m: pytest.MonkeyPatch) -> None:
    """miles PR #411, THUDM/slime issue 1563: the response is as long as its mask has ones, counted from the end."""

    def shorter(sample: Sample, tokenizer: ChatTokenizer) -> None:
        ones = sum(sample.loss_mask or ())
        mask, log_probs = (sample.loss_mask or [])[-ones:], (sample.rollout_log_probs or [])[-ones:]
        put(sample, response_length=ones, loss_mask=mask, rollout_log_probs=log_probs)

    after_joining(m, shorter)


@defect("linear/v2", "counters/reaches-driver")
def ids_kept_stand_for_ids_generated(m: pytest.MonkeyPatch) -> None:
    """miles PR #401: accept length is taken from the length of the response."""
    assemble = collect.assemble

    def by_length(*arguments: Any, **keywords: Any) -> Sample | None:
        sample = assemble(*arguments, **keywords)
        if sample is not None:
            sample.spec_info = type(sample.spec_info)(
                **{**sample.spec_info.to_dict(), "completion_token_num": sample.response_length}
            )
        return sample

    m.setattr(collect, "assemble", by_length)
