"""Train data: the rows that the trainer is given."""

from collections.abc import Iterator
from typing import Any

from miles_sim.targets.observation import SampleView
from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.rule import RolloutCase

from ._truth import effective_id, ids_clash, mask

_ROWS = {"batch.train_data"}
_IDS = {"batch.train_data", "identity"}


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


def _flat(case: Case) -> Iterator[tuple[RolloutCase, SampleView]]:
    """All samples as a trainer flattens them: prompt groups by their first rollout, then rollouts in order."""
    groups: dict[object, list[RolloutCase]] = {}
    for rollout in case.rollouts:
        group = rollout.input.group_index
        groups.setdefault(("alone", rollout.number) if group is None else group, []).append(rollout)
    return ((rollout, sample) for group in groups.values() for rollout in group for sample in rollout.samples)


def _cell(data: dict[str, Any], column: str, row: int) -> Any:
    values = data.get(column, ())
    return values[row] if row < len(values) else "no such column"
