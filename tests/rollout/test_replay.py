"""Replay rows: those of a sampled id are the ones reported when it was sampled."""

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from miles_sim.rollout.assembly import assemble
from miles_sim.rollout.collect import collect
from miles_sim.rollout.errors import AssemblyError
from miles_sim.rollout.record import Record
from miles_sim.rollout.replay import REPLAY_FIELDS, stitch
from miles_sim.rollout.sample import Sample, Status
from miles_sim.rollout.settings import RolloutSettings

LAYERS = 2
SETTINGS = RolloutSettings(routing_replay=True, routed_experts_layers=LAYERS)


def with_rows(record: Record, start: int = 0, name: str = "routed_experts") -> Record:
    """Payload whose row r holds `1000 * seq + r`."""
    count = len(record.prompt_ids) + len(record.output_ids) - 1
    rows = np.arange(start, count, dtype="<i4") + 1000 * record.seq
    payload = base64.b64encode(np.repeat(rows, LAYERS * 3).tobytes()).decode()
    layers = {"indexer_topk_num_layers": LAYERS} if name == "indexer_topk" else {}
    offsets = {f"{name}_start_len": start} if start else {}
    return replace(record, meta_info={**record.meta_info, name: payload, **layers}, replay_offsets=offsets)


def build(forest: Any, records: list[Record], limit: int | None = None) -> Sample:
    sample = assemble(records, settings=SETTINGS, tokenizer=forest.tokenizer, max_seq_len=limit)
    assert sample is not None
    sample.validate()
    return sample


def path(forest: Any) -> tuple[Any, Any, Any]:
    first = forest.grow(finish="tool_calls")
    second = forest.grow(first)
    return first, second, forest.grow(second)


@pytest.mark.parametrize("name", ["routed_experts", "indexer_topk"])
@pytest.mark.parametrize("family", ["forest", "delimited"])
def test_each_sampled_id_keeps_its_own_row(name: str, family: str, request: pytest.FixtureRequest) -> None:
    forest = request.getfixturevalue(family)
    nodes = path(forest)
    sample = build(forest, [with_rows(node.record, name=name) for node in nodes])
    rows = getattr(sample, f"rollout_{name}")
    assert rows.shape == (len(sample.tokens) - 1, LAYERS, 3)
    assert rows.dtype == np.int32
    for segment in sample.metadata["lifecycle"]:
        start, end = segment["span"]
        expected = 1000 * segment["node_id"] + np.arange(start - 1, end - 1)
        assert (rows[start - 1 : end - 1, 0, 0] == expected).all()


def test_rows_asked_for_from_an_offset_are_put_in_place(forest: Any) -> None:
    first, second, third = path(forest)
    offsets = [0, *(len(r.prompt_ids) + len(r.output_ids) - 1 for r in (first.record, second.record))]
    patches = [with_rows(node.record, start) for node, start in zip((first, second, third), offsets, strict=True)]
    whole = [with_rows(node.record) for node in (first, second, third)]
    expected = build(forest, whole).rollout_routed_experts
    assert np.array_equal(build(forest, patches).rollout_routed_experts, expected)


def test_ids_that_were_trimmed_take_their_rows_along_whatever_row_a_reply_begins_with(forest: Any) -> None:
    records = [node.record for node in path(forest)]
    ends = [
        len(record.prompt_ids) + len(record.output_ids) - trimmed
        for record, trimmed in zip(records, (0, 3, 0), strict=True)
    ]

    def rows(*starts: int) -> Any:
        told = [with_rows(record, start) for record, start in zip(records, starts, strict=True)]
        return stitch(REPLAY_FIELDS[0], list(zip(told, ends, strict=True)), ends[-1], SETTINGS)

    assert np.array_equal(rows(0, 2, 0), rows(0, 0, 0))


def test_offset_beyond_what_is_known_is_refused(forest: Any) -> None:
    first, second, _ = path(forest)
    with pytest.raises(AssemblyError, match=r"record 1: meta_info\.routed_experts: starts at row"):
        build(forest, [with_rows(first.record), with_rows(second.record, len(second.record.prompt_ids))])


def test_cut_leaves_a_prefix_of_the_rows(forest: Any) -> None:
    records = [with_rows(node.record) for node in path(forest)]
    whole = build(forest, records)
    for limit in range(len(records[0].prompt_ids) + 1, len(whole.tokens) + 1):
        cut = build(forest, records, limit)
        assert np.array_equal(cut.rollout_routed_experts, whole.rollout_routed_experts[: len(cut.tokens) - 1])


def test_turn_without_rows_ends_the_sample_visibly(forest: Any) -> None:
    first, second, third = path(forest)
    sample = build(forest, [with_rows(first.record), second.record, with_rows(third.record)])
    assert sample.tokens == [*first.record.prompt_ids, *first.output]
    tokens = len(second.output) + len(third.output)
    assert sample.metadata["dropped"] == {"replay_gap": {"turns": 2, "tokens": tokens}}
    assert sample.status is Status.TRUNCATED


def test_a_turn_without_rows_behind_the_cut_is_told_once(forest: Any) -> None:
    first, second, third = path(forest)
    sample = build(forest, [with_rows(first.record), second.record, third.record], len(first.record.prompt_ids) + 1)
    assert sample.metadata["dropped"] == {
        "max_seq_len": {"turns": 0, "tokens": len(first.output) - 1},
        "replay_gap": {"turns": 2, "tokens": len(second.output) + len(third.output)},
    }
    assert [segment["node_id"] for segment in sample.metadata["lifecycle"]] == [0, 1, 2]


def test_rows_that_begin_late_are_refused_by_name(forest: Any) -> None:
    first, second, _ = path(forest)
    with pytest.raises(AssemblyError, match=r"record 0: meta_info\.routed_experts: absent"):
        build(forest, [first.record, with_rows(second.record)])


@pytest.mark.parametrize("payload", ["???", 7, base64.b64encode(b"12345").decode(), base64.b64encode(b"1234").decode()])
def test_malformed_payload_is_refused_by_name(payload: Any, forest: Any) -> None:
    record = forest.grow().record
    record = replace(record, meta_info={**record.meta_info, "routed_experts": payload})
    with pytest.raises(AssemblyError, match=r"record 0: meta_info\.routed_experts"):
        build(forest, [record])


def test_a_generation_without_transitions_has_no_rows(forest: Any) -> None:
    record = replace(forest.grow().record, prompt_ids=(5,), output_ids=(), log_probs=())
    record = replace(record, meta_info={**record.meta_info, "routed_experts": ""})
    rows = build(forest, [record]).rollout_routed_experts
    assert (rows.shape, rows.dtype) == ((0, LAYERS, 0), np.int32)


def test_of_leaves_that_end_at_one_id_each_reason_is_counted_by_itself(forest: Any) -> None:
    root = forest.grow()
    gap, long = forest.grow(root, text="one", sampled=2), forest.grow(root, text="two", sampled=5)
    records = [with_rows(root.record), gap.record, with_rows(long.record)]
    limit = len(root.record.prompt_ids) + len(root.output)
    found = collect(records, settings=SETTINGS, tokenizer=forest.tokenizer, max_seq_len=limit, agent_metadata=None)
    (sample,) = found.samples
    assert sample.metadata["dropped"] == {
        "replay_gap": {"turns": 1, "tokens": len(gap.output)},
        "max_seq_len": {"turns": 1, "tokens": len(long.output)},
    }


@pytest.mark.parametrize("layers", [0, True, "2"])
def test_a_number_of_layers_that_is_none_is_refused_by_name(layers: Any, forest: Any) -> None:
    record = with_rows(forest.grow().record, name="indexer_topk")
    record = replace(record, meta_info={**record.meta_info, "indexer_topk_num_layers": layers})
    with pytest.raises(AssemblyError, match=r"^record 0: meta_info\.indexer_topk_num_layers: .* is not at least 1"):
        build(forest, [record])


def test_indexed_positions_are_of_one_layer_unless_the_engine_says_more(forest: Any) -> None:
    record = with_rows(forest.grow().record, name="indexer_topk")
    told = {key: value for key, value in record.meta_info.items() if key != "indexer_topk_num_layers"}
    rows = build(forest, [replace(record, meta_info=told)]).rollout_indexer_topk
    assert rows.shape[1:] == (1, LAYERS * 3)


def test_rows_of_two_shapes_are_refused_by_record_and_shape(forest: Any) -> None:
    first, second, _ = path(forest)
    count = len(second.record.prompt_ids) + len(second.output) - 1
    wider = base64.b64encode(np.zeros((count, LAYERS, 5), dtype="<i4").tobytes()).decode()
    later = replace(second.record, meta_info={**second.record.meta_info, "routed_experts": wider})
    reason = (
        rf"^record 1: meta_info\.routed_experts: rows of shape \({LAYERS}, 5\), but \({LAYERS}, 3\) in "
        r"record 0: meta_info\.routed_experts$"
    )
    with pytest.raises(AssemblyError, match=reason):
        build(forest, [with_rows(first.record), later])


def test_a_generation_without_transitions_leaves_all_rows_to_the_next(forest: Any) -> None:
    first, second, _ = path(forest)
    empty = replace(first.record, prompt_ids=first.record.prompt_ids[:1], output_ids=(), log_probs=())
    empty = replace(empty, meta_info={**empty.meta_info, "routed_experts": ""})
    later = with_rows(second.record)
    rows = build(forest, [empty, later]).rollout_routed_experts
    assert np.array_equal(rows, build(forest, [later]).rollout_routed_experts)
