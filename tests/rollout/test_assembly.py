"""A path of records becomes one sample, true to what was sampled, id by id."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.assembly import assemble
from miles_sim.rollout.counters import PrefixCacheInfo, SpecInfo
from miles_sim.rollout.errors import AssemblyError
from miles_sim.rollout.record import Record
from miles_sim.rollout.sample import Sample, Status
from miles_sim.rollout.settings import RolloutSettings

STATUS = {"stop": "completed", "tool_calls": "completed", "length": "truncated", "abort": "aborted"}


def build(forest: Any, path: list[Any], settings: RolloutSettings, limit: int | None = None) -> Sample:
    sample = assemble([node.record for node in path], settings=settings, tokenizer=forest.tokenizer, max_seq_len=limit)
    assert sample is not None
    sample.validate()
    return sample


@given(data=st.data())
def test_sample_is_what_was_sampled(data: st.DataObject, forests: Callable[..., Any], settings: Any) -> None:
    forest = forests(data.draw)
    for leaf in forest.leaves:
        path = forest.usable(leaf.path)
        sample = build(forest, leaf.path, settings)
        rows = forest.ids(path)
        begin = len(path[0].record.prompt_ids)
        assert sample.tokens == [token for token, _, _ in rows]
        assert sample.response_length == len(rows) - begin
        assert sample.loss_mask == [int(node is not None) for _, _, node in rows[begin:]]
        assert sample.rollout_log_probs == [log_prob for _, log_prob, _ in rows[begin:]]
        assert sample.status.value == STATUS[path[-1].finish]


@given(data=st.data())
def test_text_is_that_of_the_ids(data: st.DataObject, forests: Callable[..., Any], settings: Any) -> None:
    forest = forests(data.draw)
    for leaf in forest.leaves:
        sample = build(forest, leaf.path, settings)
        assert sample.response == forest.tokenizer.decode(sample.tokens[len(sample.tokens) - sample.response_length :])


@given(data=st.data())
def test_counters_are_summed_whole(data: st.DataObject, forests: Callable[..., Any], settings: Any) -> None:
    forest = forests(data.draw)
    for leaf in forest.leaves:
        path = forest.usable(leaf.path)
        sample = build(forest, leaf.path, settings)
        accepted, drafted, steps = (sum(node.counters[n] for node in path) for n in range(3))
        completion = sum(len(node.output) for node in path)
        assert sample.spec_info == SpecInfo(accepted, drafted, steps, completion)
        prompts = sum(len(node.record.prompt_ids) for node in path)
        assert sample.prefix_cache_info == PrefixCacheInfo(sum(node.cached for node in path), prompts)
        assert sample.weight_versions == [str(node.number) for node in path]


@given(data=st.data())
def test_every_sampled_id_is_kept_or_counted(data: st.DataObject, forests: Callable[..., Any], settings: Any) -> None:
    forest = forests(data.draw)
    for leaf in forest.leaves:
        longest = max(len(forest.ids(forest.usable(leaf.path))), 1)
        limit = data.draw(st.none() | st.integers(1, longest + 2))
        records = [node.record for node in leaf.path]
        sample = assemble(records, settings=settings, tokenizer=forest.tokenizer, max_seq_len=limit)
        if sample is None:
            continue
        dropped = sample.metadata.get("dropped", {})
        assert all(counts["turns"] + counts["tokens"] > 0 for counts in dropped.values())
        sampled = sum(len(record.output_ids) for record in records)
        assert sum(sample.loss_mask or []) + sum(counts["tokens"] for counts in dropped.values()) == sampled


@given(data=st.data())
def test_cut_keeps_a_prefix_and_says_so(data: st.DataObject, forests: Callable[..., Any], settings: Any) -> None:
    """At any position: the ids are those of the path, the sample ends within a reply, and truncated means cut."""
    forest = forests(data.draw, finishes=("stop", "tool_calls"))
    leaf = data.draw(st.sampled_from(forest.leaves))
    whole = forest.ids(leaf.path)
    records = [node.record for node in leaf.path]
    for limit in data.draw(st.lists(st.integers(1, len(whole) + 1), min_size=1, max_size=6)):
        sample = assemble(records, settings=settings, tokenizer=forest.tokenizer, max_seq_len=limit)
        if sample is None:
            assert limit <= len(records[0].prompt_ids)
            continue
        sample.validate()
        fitting = [node for node in leaf.path if len(node.record.prompt_ids) < limit]
        last = fitting[-1]
        expected = forest.ids(last.path)[:limit]
        assert sample.tokens == [token for token, _, _ in expected]
        begin = len(records[0].prompt_ids)
        assert sample.loss_mask == [int(node is not None) for _, _, node in expected[begin:]]
        assert sample.rollout_log_probs == [log_prob for _, log_prob, _ in expected[begin:]]
        assert sample.loss_mask[-1] == 1
        assert (sample.status is Status.TRUNCATED) == (len(whole) > limit)
        assert ("max_seq_len" in sample.metadata.get("dropped", {})) == (len(whole) > limit)
        assert sample.spec_info.completion_token_num == sum(len(node.output) for node in fitting)


def test_cut_at_each_position_of_two_turns(delimited: Any, settings: RolloutSettings) -> None:
    first = delimited.grow(finish="tool_calls")
    path = delimited.grow(first, role="user").path
    prompt, reply = len(first.record.prompt_ids), len(first.output)
    whole = len(delimited.ids(path))
    second = len(path[1].record.prompt_ids)
    for limit in range(prompt + 1, whole + 1):
        sample = build(delimited, path, settings, limit)
        kept = min(limit - prompt, reply) if limit <= second else reply - 1 + limit - second
        assert sum(sample.loss_mask or []) == kept, limit
        assert (sample.status is Status.TRUNCATED) == (limit < whole), limit


def test_a_generation_that_fits_whole_is_not_told_as_cut(forest: Any, settings: RolloutSettings) -> None:
    first = forest.grow()
    path = forest.grow(first, role="tool").path
    sample = build(forest, path, settings, len(first.record.prompt_ids) + len(first.output))
    assert [segment.get("dropped") for segment in sample.metadata["lifecycle"]] == [None, "max_seq_len"]


def test_stop_that_opens_the_next_message_stays_trainable(delimited: Any, settings: RolloutSettings) -> None:
    first = delimited.grow(finish="tool_calls")
    second = delimited.grow(first, role="tool")
    sample = build(delimited, second.path, settings)
    assert "dropped" not in sample.metadata
    assert sum(sample.loss_mask or []) == len(first.output) + len(second.output)


def test_stop_that_the_next_message_replaces_is_trimmed_and_counted(delimited: Any, settings: RolloutSettings) -> None:
    first = delimited.grow(finish="tool_calls")
    second = delimited.grow(first, role="user")
    sample = build(delimited, second.path, settings)
    assert sample.metadata["dropped"] == {"trailing_trim": {"turns": 0, "tokens": 1}}
    at = len(first.record.prompt_ids) + len(first.output) - 1
    assert sample.tokens[at] == delimited.tokenizer.special_ids["<|user|>"]
    assert sample.spec_info.completion_token_num == len(first.output) + len(second.output)


def test_trim_beyond_the_limit_is_refused(forest: Any, settings: RolloutSettings) -> None:
    first = forest.grow()
    second = forest.grow(first)
    prompt = list(second.record.prompt_ids)
    del prompt[len(first.record.prompt_ids) + len(first.output) - 1]
    records = [first.record, replace(second.record, prompt_ids=prompt)]
    with pytest.raises(AssemblyError, match="record 1: prompt_ids"):
        assemble(records, settings=settings, tokenizer=forest.tokenizer, max_seq_len=None)


@given(data=st.data())
def test_drift_anywhere_in_what_a_turn_repeats_is_refused(
    data: st.DataObject, forests: Callable[..., Any], settings: Any
) -> None:
    """Once changed, an id stays changed for all later prompts, as it does for a server that lost it."""
    forest = forests(data.draw, finishes=("stop", "tool_calls"), linear=True)
    if len(forest.nodes) < 2:
        return
    victim = data.draw(st.integers(1, len(forest.nodes) - 1))
    known = len(forest.nodes[victim - 1].record.prompt_ids) + len(forest.kept(forest.nodes[-1].path)[victim - 1])
    at = data.draw(st.integers(0, known - 1))
    records = [replace(r, prompt_ids=drifted(r, at)) if r.seq >= victim else r for r in forest.records]
    if forest.tokenizer.max_trim_tokens and at == known - 1:
        return  # a change of the last sampled id reads as a trim
    with pytest.raises(AssemblyError, match="prompt_ids"):
        assemble(records, settings=settings, tokenizer=forest.tokenizer, max_seq_len=None)


def test_drift_that_only_the_next_prompt_shows_is_refused(forest: Any, settings: RolloutSettings) -> None:
    first = forest.grow(text="long question")
    second = forest.grow(first, text="long question")
    third = forest.grow(second)
    forest.grow(third)
    known = len(first.record.prompt_ids) + len(first.output)
    for at in range(known, len(second.record.prompt_ids)):
        records = [replace(r, prompt_ids=drifted(r, at)) if r.seq == third.number else r for r in forest.records]
        with pytest.raises(AssemblyError, match="record 2: prompt_ids: differ from record 1"):
            assemble(records, settings=settings, tokenizer=forest.tokenizer, max_seq_len=None)


def drifted(record: Record, at: int) -> list[int]:
    ids = list(record.prompt_ids)
    ids[at] += 1
    return ids


@pytest.mark.parametrize("finish", ["abort", "length"])
def test_turns_after_an_early_end_are_dropped_visibly(finish: str, forest: Any, settings: RolloutSettings) -> None:
    first = forest.grow()
    second = forest.grow(first, finish=finish)
    third = forest.grow(second)
    fourth = forest.grow(third)
    sample = build(forest, fourth.path, settings)
    tokens = len(third.output) + len(fourth.output)
    assert sample.metadata["dropped"] == {f"after_{finish}": {"turns": 2, "tokens": tokens}}
    assert sample.status.value == STATUS[finish]
    assert [segment.get("dropped") for segment in sample.metadata["lifecycle"]][2:] == [f"after_{finish}"] * 2


def test_lifecycle_tells_each_generation(forest: Any, settings: RolloutSettings) -> None:
    first = forest.grow(meta_info={"e2e_latency": 0.5})
    second = forest.grow(first)
    sample = build(forest, second.path, settings)
    one, two = sample.metadata["lifecycle"]
    assert (one["turn"], one["node_id"], one["response_id"], one["latency"]) == (1, 0, f"{0:032x}", 0.5)
    for segment, node in ((one, first), (two, second)):
        start, end = segment["span"]
        assert sample.tokens[start:end] == node.output
    assert two["spec_info"]["spec_draft_token_num"] == 6


def test_messages_are_recorded_on_request(forest: Any, settings: RolloutSettings) -> None:
    node = forest.grow(text="hello")
    assert "messages" not in build(forest, [node], settings).metadata
    recorded = build(forest, [node], replace(settings, record_messages=True)).metadata["messages"]
    assert [message["role"] for message in recorded] == ["user", "assistant"]


def test_empty_reply_is_a_sample_without_response(forest: Any, settings: RolloutSettings) -> None:
    node = forest.grow(sampled=0, finish="abort")
    sample = build(forest, [node], settings)
    assert (sample.response_length, sample.loss_mask, sample.status) == (0, [], Status.ABORTED)


def test_lengths_of_ids_and_logprobs_must_agree(forest: Any, settings: RolloutSettings) -> None:
    record = replace(forest.grow().record, log_probs=(-0.5,))
    with pytest.raises(AssemblyError, match="record 0: log_probs: 1 "):
        assemble([record], settings=settings, tokenizer=forest.tokenizer, max_seq_len=None)


@pytest.mark.parametrize("reason", ["content_filter", ""])
def test_unknown_finish_reason_is_refused(reason: str, forest: Any, settings: RolloutSettings) -> None:
    record = replace(forest.grow().record, finish_reason=reason)
    with pytest.raises(AssemblyError, match="finish_reason"):
        assemble([record], settings=settings, tokenizer=forest.tokenizer, max_seq_len=None)


def test_a_prompt_that_adds_nothing_to_a_reply_is_refused(forest: Any, settings: RolloutSettings) -> None:
    first = forest.grow().record
    again = replace(first, seq=1, parent=0, prompt_ids=[*first.prompt_ids, *first.output_ids])
    with pytest.raises(AssemblyError, match=r"^record 1: prompt_ids: add nothing to what record 0 left$"):
        assemble([first, again], settings=settings, tokenizer=forest.tokenizer, max_seq_len=None)


class Counted(tuple[int, ...]):
    """Ids that tell how many of them were looked at in slices."""

    looked_at = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(key, slice):
            Counted.looked_at += len(found)
        return found


def test_assembling_costs_the_ids_of_the_path_not_their_square(forest: Any, settings: RolloutSettings) -> None:
    node = None
    for _ in range(60):
        node = forest.grow(node, text="and more of the same")
    records = [replace(one, prompt_ids=Counted(one.prompt_ids)) for one in forest.records]
    Counted.looked_at = 0
    sample = assemble(records, settings=settings, tokenizer=forest.tokenizer, max_seq_len=None)
    assert sample is not None
    assert Counted.looked_at <= 4 * len(sample.tokens)


def test_lifecycle_tells_what_is_left_out_and_that_nothing_of_it_is_here(
    forest: Any, settings: RolloutSettings
) -> None:
    first = forest.grow(sampled=4)
    second = forest.grow(forest.grow(first, sampled=5), text="more", sampled=2)
    limit = len(first.record.prompt_ids) + 2
    sample = build(forest, second.path, settings, limit)
    told = [(s["turn"], s["span"], s["sampled"], s["dropped"]) for s in sample.metadata["lifecycle"]]
    assert told == [(1, [limit - 2, limit], 5, "max_seq_len"), (2, None, 6, "max_seq_len"), (3, None, 3, "max_seq_len")]
    assert sample.metadata["dropped"] == {"max_seq_len": {"turns": 2, "tokens": 3 + 6 + 3}}


def test_a_record_without_prompt_is_refused(forest: Any, settings: RolloutSettings) -> None:
    record = replace(forest.grow().record, prompt_ids=())
    with pytest.raises(AssemblyError, match=r"^record 0: prompt_ids: empty$"):
        assemble([record], settings=settings, tokenizer=forest.tokenizer, max_seq_len=None)
