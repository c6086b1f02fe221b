"""The nested batch of rollouts: prompts, each of rollouts, each of one sample or a list of siblings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from miles_sim.rollout.errors import BatchError, RolloutIdentityError
from miles_sim.rollout.sample import Sample

Nested = Sequence[Any]
"""`[group, …]`; a group is `[rollout, …]`; a rollout is a Sample or a list of samples."""


@dataclass(frozen=True)
class Trimmed:
    """A flat batch cut to whole training steps. Rows keep their order; which ones stay does not hang on it."""

    kept: list[int]
    """Rows that are trained on."""
    dropped: list[int]
    """Rows of the rollouts that are left over."""
    steps: list[list[int]]
    """The rows of each step, rollout by rollout."""
    rollouts: list[int]
    """Rollouts of each step."""


def validate_rollout_ids(nested: Nested) -> None:
    """Check that the batch can be told apart by rollout.

    BatchError for another shape. RolloutIdentityError unless siblings share one `rollout_id` that is not None, no two
    rollouts have one effective id (`rollout_id`, else `index`) or one sample in common, and a group is of one
    `group_index` that no other has: sums, baselines and batch sizes are kept under these.
    """
    ids: dict[int, str] = {}
    groups: dict[int, int] = {}
    places: dict[int, str] = {}
    for place, group, siblings in _rollouts(nested):
        for n, sample in enumerate(siblings):
            if id(sample) in places:
                raise RolloutIdentityError(f"{place}[{n}]: the same object as {places[id(sample)]}")
            places[id(sample)] = f"{place}[{n}]"
        _check_siblings(siblings, place)
        _check_group(siblings, place, group, nested, groups)
        effective = siblings[0].effective_id
        if effective is None:
            continue
        if effective in ids:
            raise RolloutIdentityError(
                f"{place}: rollout_id {siblings[0].rollout_id}, index {siblings[0].index}: {ids[effective]} has the "
                f"effective id {effective} too"
            )
        ids[effective] = place


def _check_siblings(siblings: Sequence[Sample], place: str) -> None:
    ids = [sample.rollout_id for sample in siblings]
    if len(siblings) > 1 and None in ids:
        raise RolloutIdentityError(f"{place}[{ids.index(None)}].rollout_id: None beside {len(ids) - 1} siblings")
    if len(set(ids)) > 1:
        raise RolloutIdentityError(f"{place}: rollout_id: siblings have {ids}, not one id")


def _check_group(siblings: Sequence[Sample], place: str, group: int, nested: Nested, groups: dict[int, int]) -> None:
    first = _first(nested[group][0]).group_index
    for n, sample in enumerate(siblings):
        if sample.group_index != first:
            raise RolloutIdentityError(
                f"{place}[{n}].group_index: {sample.group_index}, but batch[{group}] begins with {first}"
            )
    if first is not None and groups.setdefault(first, group) != group:
        raise RolloutIdentityError(f"{place}: group_index {first}: batch[{groups[first]}] has it too")


def _first(rollout: Any) -> Sample:
    return rollout if isinstance(rollout, Sample) else rollout[0]


def rollouts(nested: Nested) -> Iterator[tuple[str, list[Sample]]]:
    """Each rollout's place in the batch and its samples; BatchError names the place of any other shape."""
    return ((place, siblings) for place, _, siblings in _rollouts(nested))


def _rollouts(nested: Nested) -> Iterator[tuple[str, int, list[Sample]]]:
    for g, group in enumerate(_list(nested, "batch")):
        if not _list(group, f"batch[{g}]"):
            raise BatchError(f"batch[{g}]: a group without rollouts")
        for r, rollout in enumerate(group):
            place = f"batch[{g}][{r}]"
            siblings = [rollout] if isinstance(rollout, Sample) else list(_list(rollout, place))
            if not siblings:
                raise BatchError(f"{place}: a rollout without samples")
            for n, sample in enumerate(siblings):
                if not isinstance(sample, Sample):
                    raise BatchError(f"{place}[{n}]: {type(sample).__name__} is not a Sample")
            yield place, g, siblings


def flatten(nested: Nested) -> list[Sample]:
    """All samples in order; groups stay together, and siblings within them."""
    return [sample for _, siblings in rollouts(nested) for sample in siblings]


def trim(samples: Sequence[Sample], global_batch_size: int) -> Trimmed:
    """Whole steps of `global_batch_size` rollouts; what is left over is told, and never cut within a rollout.

    Rollouts come by group and id, so that arrival decides nothing. One without an effective id is a rollout of its
    own, by its row.
    """
    if type(global_batch_size) is not int or global_batch_size < 1:
        raise BatchError(f"global_batch_size: {global_batch_size!r} is not a whole number of at least 1")
    rows: dict[tuple[Any, ...], list[int]] = {}
    for row, sample in enumerate(samples):
        rows.setdefault(rollout_key(sample, row), []).append(row)
    ordered = [sorted(rows[key], key=lambda row: samples[row].tokens) for key in sorted(rows, key=_rank)]
    whole = len(ordered) // global_batch_size * global_batch_size
    starts = range(0, whole, global_batch_size)
    steps = [[row for own in ordered[n : n + global_batch_size] for row in own] for n in starts]
    return Trimmed(
        kept=sorted(row for step in steps for row in step),
        dropped=sorted(row for own in ordered[whole:] for row in own),
        steps=steps,
        rollouts=[global_batch_size for _ in starts],
    )


def dynamic_batch_size(samples: Sequence[Sample], dp_size: int) -> int:
    """Rollouts of the one step that takes all of them but those which `dp_size` ranks cannot share evenly.

    BatchError where there are fewer rollouts than ranks.
    """
    count = len({rollout_key(sample, row) for row, sample in enumerate(samples)})
    if type(dp_size) is not int or dp_size < 1:
        raise BatchError(f"dp_size: {dp_size!r} is not a whole number of at least 1")
    if count < dp_size:
        raise BatchError(f"batch: {count} rollouts are fewer than dp_size={dp_size}")
    return count // dp_size * dp_size


def rollout_key(sample: Sample, row: int) -> tuple[Any, ...]:
    """What tells a sample's rollout from the others of a flat batch; `row` stands in for a missing id."""
    effective = sample.effective_id
    return (sample.group_index, effective) if effective is not None else (sample.group_index, "row", row)


def _rank(key: tuple[Any, ...]) -> tuple[Any, ...]:
    group, last = key[0], key[-1]
    return group is None, group or 0, len(key), last


def _list(value: Any, place: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise BatchError(f"{place}: {type(value).__name__} is not a list")
    return value
