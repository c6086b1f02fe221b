"""Rows of routed experts that are not those of the tokens they stand beside."""

from collections.abc import Sequence
from typing import Any

import pytest

from miles_sim.rollout import assembly, replay
from miles_sim.rollout.record import Record

from .defect import defect


@defect("replay-experts/v1", "tokens/replay-rows-agree")
def rows_of_earlier_turns_are_the_last_prefills(m: pytest.MonkeyPatch) -> None:
    """miles merge_samples, radixark/miles PR 3307: the last turn's payload stands for the whole path."""
    stitch = assembly.stitch

    def last_alone(field: Any, turns: Sequence[tuple[Record, int]], total_ids: int, settings: Any) -> Any:
        return stitch(field, turns[-1:], total_ids, settings)

    m.setattr(assembly, "stitch", last_alone)


@defect("replay-experts/v2", "tokens/replay-rows-agree")
def rows_are_one_late(m: pytest.MonkeyPatch) -> None:
    """Row i beside token i, where it belongs to the step from i - 1."""
    rows = replay._rows

    def shifted(*args: Any) -> Any:
        right = rows(*args)
        return right[[0, *range(len(right) - 1)]] if len(right) else right

    m.setattr(replay, "_rows", shifted)


@defect("replay-cut/v2", "tokens/lengths-agree")
def rows_are_not_cut_with_the_tokens(m: pytest.MonkeyPatch) -> None:
    """miles PR #1069: max_seq_len trims ids, mask and logprobs, not the rows."""
    stitch = assembly.stitch

    def whole(field: Any, turns: Sequence[tuple[Record, int]], total_ids: int, settings: Any) -> Any:
        record, _ = turns[-1]
        end = len(record.prompt_ids) + len(record.output_ids)
        return stitch(field, [*turns[:-1], (record, end)], end, settings)

    m.setattr(assembly, "stitch", whole)
    m.setattr(assembly.Sample, "validate", lambda self: None)
