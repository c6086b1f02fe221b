"""Replay rows: what a model was routed to when it sampled is what the trainer routes it to."""

import base64
from typing import Any

import numpy as np

from miles_sim.ledger import Generation
from miles_sim.rows import rows
from miles_sim.targets.observation import Rows, SampleView
from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.rule import RolloutCase


@rule(
    "tokens/replay-rows-agree",
    level="alignment",
    reason="A row of another pass sends the trainer through other experts than those that gave the logprobs.",
    source="miles PRs #1069 and 1efb5fade, radixark/miles PR 3307 (rows of a later prefill); design 6.8",
    needs={"routing_replay"},
    after={"tokens/lengths-agree"},
)
def replay_rows_agree(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """Rows of sampled ids are those reported when they were sampled, one a transition; others are of the same path."""
    found, stated = rollout.alignment(sample), sample.rollout_routed_experts
    if not case.scenario.routing_replay or not found.spans:
        return
    if not see.that(stated is not None, "rollout_routed_experts is missing") or stated is None:
        return
    given = _flat(stated)
    if not see.equal(len(given), len(sample.tokens) - 1, "rollout_routed_experts has not one row a transition"):
        return
    owned = np.zeros(len(given), dtype=bool)
    path = [_rows(span.generation) for span in found.spans]
    for span, true in zip(found.spans, path, strict=True):
        own = slice(max(span.start - 1, 0), span.end - 1)
        owned[own] = True
        _same(given[own], true[own], own.start, see)
    wrong = [at for at in np.flatnonzero(~owned) if not any(len(t) > at and _equal(given[at], t[at]) for t in path)]
    see.that(
        not wrong,
        "rows between replies are of no generation on the path",
        expected="rows of the prefill that read them",
        found=f"{len(wrong)} other rows, the first is row {wrong[0]}" if wrong else "",
    )


def _same(given: Any, true: Any, start: int, see: Recorder) -> None:
    wrong = [at for at in range(len(given)) if not _equal(given[at], true[at])]
    at = wrong[0] if wrong else 0
    see.that(
        not wrong,
        "rows of sampled ids are not those reported when they were sampled",
        expected=true[at].tolist() if wrong else "",
        found=f"{len(wrong)} other rows, the first is row {start + at}: {given[at].tolist()}" if wrong else "",
    )


def _equal(left: Any, right: Any) -> bool:
    return bool(np.array_equal(left, right))


def _flat(stated: Rows) -> Any:
    """One line a row: how layers and choices are told apart is the target's own."""
    array = np.frombuffer(base64.b64decode(stated.base64), dtype=np.dtype(stated.dtype).newbyteorder("<"))
    return array.reshape(stated.shape[0], -1) if stated.shape and stated.shape[0] else array.reshape(0, 1)


def _rows(generation: Generation) -> Any:
    truth = generation.routed_experts
    if truth is None:
        return np.zeros((0, 1), dtype=np.int32)
    drawn = rows(truth, (*generation.prompt_ids, *generation.output_ids))
    return drawn.reshape(len(drawn), truth.layers * truth.topk)
