"""Ids, masks, logprobs and status, as a sample is put together."""

import dataclasses
from typing import Any

import pytest

from miles_sim.rollout import assembly, sample, selection
from miles_sim.rollout.sample import Sample, Status
from miles_sim.tokenizer import ChatTokenizer

from .defect import after_joining, defect, put


@defect("linear/v1", "tokens/lengths-agree")
def the_mask_is_one_short(m: pytest.MonkeyPatch) -> None:
    """miles under python -O: what assertions guard goes through."""
    m.setattr(Sample, "validate", lambda self: None)
    after_joining(m, lambda s, tokenizer: put(s, loss_mask=(s.loss_mask or [])[1:]))


@defect("linear/v1", "tokens/prompt-is-what-the-engine-got")
def the_first_id_is_lost(m: pytest.MonkeyPatch) -> None:
    """The prompt is rendered once more, without its opening token."""
    after_joining(m, lambda s, tokenizer: put(s, tokens=s.tokens[1:]))


@defect("linear/v1", "tokens/response-is-what-it-said")
def sampled_text_is_tokenised_again(m: pytest.MonkeyPatch) -> None:
    """trl issue 5224, ms-swift PR 10012: the ids are those of the text, not those that were sampled."""

    def again(s: Sample, tokenizer: ChatTokenizer) -> None:
        ids = tokenizer.encode(s.response)
        tokens = s.tokens[: len(s.tokens) - s.response_length] + ids
        ones, zeros = [1] * len(ids), [0.0] * len(ids)
        put(s, tokens=tokens, response_length=len(ids), loss_mask=ones, rollout_log_probs=zeros)

    after_joining(m, again)


@defect("linear/v1", "tokens/logprobs-aligned")
def logprobs_are_shifted(m: pytest.MonkeyPatch) -> None:
    """Off by one from the first observation on."""
    after_joining(m, lambda s, tokenizer: put(s, rollout_log_probs=[0.0, *(s.rollout_log_probs or [])[:-1]]))


@defect("tools/v1", "tokens/observation-masked")
def tool_results_are_trained(m: pytest.MonkeyPatch) -> None:
    """The mask is as long as it must be, and all ones."""
    after_joining(m, lambda s, tokenizer: put(s, loss_mask=[1] * s.response_length))


@defect("subagent-fork-after/v2", "tokens/trainable-exactly-once")
def shared_turns_are_trained_twice(m: pytest.MonkeyPatch) -> None:
    """No owner is chosen for what two leaves share."""
    m.setitem(selection.POSTPROCESSORS, "default", lambda samples, metadata: samples)


@defect("linear/v1", "tokens/trailing-trim", "tokens/trainable-exactly-once")
def the_last_stop_token_is_trimmed(m: pytest.MonkeyPatch) -> None:
    """The trim of middle turns is done to the last one as well."""
    plan = assembly.plan

    def trimming(*args: Any, **kwargs: Any) -> list[assembly.Turn]:
        turns = plan(*args, **kwargs)
        return [*turns[:-1], dataclasses.replace(turns[-1], kept=turns[-1].kept - 1)]

    m.setattr(assembly, "plan", trimming)


@defect("max-seq-len-turn/v2", "tokens/truncation-at-turn")
def a_cut_between_turns_is_not_told(m: pytest.MonkeyPatch) -> None:
    """miles of August 2026: later turns are dropped, and the sample stays completed."""
    cut = assembly._cut
    m.setattr(assembly, "_cut", lambda turns, last, limit: [t for t in cut(turns, last, limit) if not t.whole])


@defect("linear/v1", "tokens/text-agrees")
def the_text_is_the_last_reply_alone(m: pytest.MonkeyPatch) -> None:
    """A merge that keeps the later side's text."""
    after_joining(m, lambda s, tokenizer: put(s, response=s.response[-10:]))


@defect("truncated/v1", "status/mapped")
def every_sample_is_completed(m: pytest.MonkeyPatch) -> None:
    """miles 3db3545cd: the status is hard-coded."""
    m.setattr(sample, "status_of", lambda reason: Status.COMPLETED)


@defect("aborted/v1", "status/never-pending", "status/mapped")
def an_unknown_reason_stays_pending(m: pytest.MonkeyPatch) -> None:
    """miles: a finish reason outside the table changes nothing."""
    known = sample.status_of
    m.setattr(sample, "status_of", lambda reason: Status.PENDING if reason == "abort" else known(reason))
