"""Train data: the rows that the trainer is given."""

import statistics
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from miles_sim.scenarios.model import Batch
from miles_sim.targets.observation import SampleView
from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.rule import RolloutCase

from ._truth import close, effective_id, ids_clash, mask, rewards_clash, step_is_filled

_ROWS = {"batch.train_data"}
_IDS = {"batch.train_data", "identity"}
_SINGLE_PRECISION = 1e-4
"""Trainers normalize in float32."""


@rule(
    "train-data/rows",
    level="meaning",
    needs=_ROWS,
    reason="A row cut, shifted or taken from its neighbour trains on data that no rollout produced.",
    source="miles convert_samples_to_train_data; design 6.8",
)
def rows(case: Case, see: Recorder) -> None:
    """There is one row a sample, group by group in the order of rollouts, and its columns are the sample's."""
    data = case.observation.batch.train_data if case.observation.batch else None
    if data is None:
        return
    samples = [sample for _, sample in _flat(case)]
    if not see.equal(len(data.get("tokens", ())), len(samples), "number of rows is not the number of samples"):
        return
    for number, sample in enumerate(samples):
        expected: dict[str, Any] = {
            "tokens": list(sample.tokens),
            "response_lengths": sample.response_length,
            "loss_masks": list(mask(sample)),
            "truncated": int(sample.status == "truncated"),
        }
        for column, value in expected.items():
            found = _cell(data, column, number)
            see.equal(found, value, f"{column} of a row differs from its sample", f"row {number}")


@rule(
    "train-data/ids",
    level="meaning",
    needs=_IDS,
    reason="Loss weights and advantages are computed per rollout id.",
    source="miles convert_samples_to_train_data: rollout_id, else index; design 6.1",
)
def ids(case: Case, see: Recorder) -> None:
    """Each row stands under the effective id of its rollout's input."""
    data = case.observation.batch.train_data if case.observation.batch else None
    if data is None:
        return
    expected = [effective_id(rollout.input) for rollout, _ in _flat(case)]
    see.equal(data.get("rollout_ids"), expected, "rollout_ids of the rows")


@rule(
    "train-data/mask-sums",
    level="meaning",
    needs=_IDS,
    reason="The denominator of a rollout's loss: too small or too large, and the rollout weighs wrongly.",
    source="miles rollout_mask_sums; design 6.8",
)
def mask_sums(case: Case, see: Recorder) -> None:
    """rollout_mask_sums of each row is the number of trainable ids in all samples of its rollout."""
    data = case.observation.batch.train_data if case.observation.batch else None
    if data is None or ids_clash(case):
        return
    totals = {rollout.number: sum(sum(mask(sample)) for sample in rollout.samples) for rollout in case.rollouts}
    expected = [totals[rollout.number] for rollout, _ in _flat(case)]
    see.equal(data.get("rollout_mask_sums"), expected, "rollout_mask_sums of the rows")


@rule(
    "train-data/rewards-per-rollout",
    level="meaning",
    needs=_ROWS,
    reason="A rollout that left several samples would weigh several times in its prompt's baseline.",
    source="miles PR #2369; design 6.8",
)
def rewards_per_rollout(case: Case, see: Recorder) -> None:
    """A row's reward is its rollout's, less the mean of its prompt's rollouts, over their deviation, as asked for; what
    was aborted and has no reward moves nothing: 0."""
    data = case.observation.batch.train_data if case.observation.batch else None
    if data is None or ids_clash(case) or case.scenario.batch.rewards == "sample":
        return
    rewards = {rollout.number: _reward(rollout) for rollout in case.rollouts}
    if all(reward is None for reward in rewards.values()):
        return
    for row, (rollout, sample) in enumerate(_flat(case)):
        own = None if sample.status == "aborted" and sample.reward is None else rewards[rollout.number]
        groups = [[r for r in case.rollouts if r.input.group_index == rollout.input.group_index]]
        groups.append([r for r in groups[0] if not _dropped(case, r)])
        allowed = [
            0.0
            if own is None
            else _advantage(own, tuple(rewards[r.number] for r in group), case.scenario.batch.normalize)
            for group in groups
        ]
        found = _cell(data, "rewards", row)
        holds = isinstance(found, int | float) and any(close(found, value, _SINGLE_PRECISION) for value in allowed)
        see.that(holds, "reward of a row", expected=allowed[0], found=found, detail=f"row {row}")


@rule(
    "train-data/unequal-rewards-refused",
    level="meaning",
    needs=_ROWS,
    reason="Of siblings with different rewards one would silently stand for all of them.",
    source="miles PR #2369; design 6.8",
)
def unequal_rewards_refused(case: Case, see: Recorder) -> None:
    """A batch whose rewards are normalized by rollout is refused where siblings have different ones."""
    batch = case.observation.batch
    if batch is None or not rewards_clash(case):
        return
    refused = batch.error is not None and "reward" in batch.error.message
    found = "train data" if batch.error is None else f"{batch.error.type}: {batch.error.message}"
    see.that(refused, "unequal rewards of siblings", expected="an error that names the reward", found=found)


@rule(
    "train-data/trimming",
    level="meaning",
    needs={"batch.trim"},
    reason="A rollout cut in two trains on half its loss; one left out unseen is compute that vanishes.",
    source="design 6.8; miles trims by rows, and drops the last rollouts of a compact batch unseen",
)
def trimming(case: Case, see: Recorder) -> None:
    """Training steps are of whole rollouts: as many as there are, and what fills none is told; else an error."""
    batch, asked = case.observation.batch, case.scenario.batch
    size = asked.global_batch_size or (asked.dp_size if asked.dp_size > 1 else None)
    if batch is None or size is None or ids_clash(case) or rewards_clash(case):
        return
    if not step_is_filled(case):
        see.that(batch.error is not None, "a batch that fills no step", expected="an error", found="train data")
        return
    present = {effective_id(r.input): len(r.samples) for r in case.rollouts if r.samples}
    if not see.that(batch.train_data is not None, "a batch that fills a step", expected="train data", found="none"):
        return
    data = batch.train_data or {}
    ids = data.get("rollout_ids", data.get("sample_indices", []))  # a release of linear sessions alone has no ids
    kept = {id: ids.count(id) for id in ids}
    see.equal(len(kept), len(present) // size * size, "number of rollouts that are trained on")
    see.equal(kept, {id: rows for id, rows in present.items() if id in kept}, "rows of each rollout")
    see.equal(sorted(batch.dropped or ()), sorted(present.keys() - kept.keys()), "rollouts told as left out")


@rule(
    "train-data/shards",
    level="meaning",
    needs={"batch.shards"},
    reason="A column that no shard carries trains as if it had never been; ranks with unequal steps wait for ever.",
    source="design 6.8; miles package_shards copies listed columns",
)
def shards(case: Case, see: Recorder) -> None:
    """Each row and each column is in the shards, once; all ranks go through as many micro-batches a step."""
    batch = case.observation.batch
    if batch is None or batch.train_data is None or batch.shards is None:
        return
    see.equal(len(batch.shards), case.scenario.batch.dp_size, "number of shards")
    rows = sorted(row for shard in batch.shards for row in shard.partition)
    see.equal(rows, list(range(len(batch.train_data.get("tokens", ())))), "rows of all shards")
    ids = batch.train_data.get("rollout_ids", [])
    for rank, shard in enumerate(batch.shards):
        see.equal(sorted(shard.columns), sorted(batch.train_data), "columns of a shard", f"rank {rank}")
        if ids:
            see.equal(list(shard.rollout_ids), [ids[row] for row in shard.partition], "ids of a shard", f"rank {rank}")
        see.equal(shard.num_microbatches, batch.shards[0].num_microbatches, "micro-batches a step", f"rank {rank}")


def _flat(case: Case) -> Iterator[tuple[RolloutCase, SampleView]]:
    """All samples that are trained on, as a trainer flattens them: prompt groups by their first rollout, then rollouts
    in order."""
    groups: dict[object, list[RolloutCase]] = {}
    for rollout in case.rollouts:
        group = rollout.input.group_index
        groups.setdefault(("alone", rollout.number) if group is None else group, []).append(rollout)
    kept = (rollout for group in groups.values() for rollout in group if not _dropped(case, rollout))
    return ((rollout, sample) for rollout in kept for sample in rollout.samples)


def _dropped(case: Case, rollout: RolloutCase) -> bool:
    """It is told to fill no training step, where steps have a size."""
    told = case.observation.batch.dropped if case.observation.batch else None
    if told is None or case.scenario.batch == Batch():
        return False
    return effective_id(rollout.input) in told


def _reward(rollout: RolloutCase) -> float | None:
    """What `Job`'s reward model gives the rollout; None where all of it was aborted."""
    scored = [sample for sample in rollout.samples if sample.status != "aborted" or sample.reward is not None]
    if not scored:
        return None
    reward = scored[0].reward if scored[0].reward is not None else scored[0].metadata.get("reward", 0.0)
    return float(reward) if isinstance(reward, int | float) else None


@lru_cache(maxsize=64)  # most rows of a batch are of a few prompts, with a few rewards
def _advantage(own: float, group: tuple[float | None, ...], normalize: str) -> float:
    if normalize == "none":
        return own
    rewards = [reward for reward in group if reward is not None]
    centred = own - statistics.fmean(rewards)
    if normalize == "mean" or len(rewards) < 2:
        return centred
    deviation = statistics.stdev(rewards)
    return centred / (deviation + 1e-6) if deviation > 0 else centred


def _cell(data: dict[str, Any], column: str, row: int) -> Any:
    values = data.get(column, ())
    return values[row] if row < len(values) else "no such column"
