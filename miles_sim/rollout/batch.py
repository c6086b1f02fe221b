"""The nested batch of rollouts: prompts, each of rollouts, each of one sample or a list of siblings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from miles_sim.rollout.errors import RolloutIdentityError
from miles_sim.rollout.sample import Sample

Nested = Sequence[Any]
"""`[group, …]`; a group is `[rollout, …]`; a rollout is a Sample or a list of samples."""


@dataclass(frozen=True)
class Trimmed:
    """A flat batch cut to whole training steps."""

    samples: list[Sample]
    dropped: list[Sample]


def validate_rollout_ids(nested: Nested) -> None:
    """RolloutIdentityError unless the batch can be told apart by rollout.

    Siblings share one `rollout_id` that is not None, and no two rollouts have one effective id (`rollout_id`, else
    `index`): the sums that weigh a rollout's rows are kept under that id.
    """
    seen: dict[int, str] = {}
    for place, siblings in rollouts(nested):
        ids = [sample.rollout_id for sample in siblings]
        if len(siblings) > 1 and None in ids:
            raise RolloutIdentityError(f"{place}[{ids.index(None)}].rollout_id: None beside {len(ids) - 1} siblings")
        if len(set(ids)) > 1:
            raise RolloutIdentityError(f"{place}: rollout_id: siblings have {ids}, not one id")
        effective = siblings[0].effective_id
        if effective is None:
            continue
        if effective in seen:
            raise RolloutIdentityError(
                f"{place}: rollout_id {siblings[0].rollout_id}, index {siblings[0].index}: {seen[effective]} has the "
                f"effective id {effective} too"
            )
        seen[effective] = place


def rollouts(nested: Nested) -> Iterator[tuple[str, list[Sample]]]:
    """Each rollout's place in the batch and its samples; RolloutIdentityError for any other shape."""
    for g, group in enumerate(_list(nested, "batch")):
        for r, rollout in enumerate(_list(group, f"batch[{g}]")):
            place = f"batch[{g}][{r}]"
            siblings = [rollout] if isinstance(rollout, Sample) else list(_list(rollout, place))
            if not siblings:
                raise RolloutIdentityError(f"{place}: a rollout without samples")
            for n, sample in enumerate(siblings):
                if not isinstance(sample, Sample):
                    raise RolloutIdentityError(f"{place}[{n}]: {type(sample).__name__} is not a Sample")
            yield place, siblings


def flatten(nested: Nested) -> list[Sample]:
    """All samples in order; groups stay together, and siblings within them."""
    return [sample for _, siblings in rollouts(nested) for sample in siblings]


def trim(samples: Sequence[Sample], global_batch_size: int) -> Trimmed:
    """The first whole multiple of `global_batch_size` rollouts; what is left over is told, never cut within a rollout.

    A sample without an effective id is a rollout of its own.
    """
    order: dict[Any, int] = {}
    for n, sample in enumerate(samples):
        order.setdefault(rollout_key(sample, n), len(order))
    keep = len(order) // global_batch_size * global_batch_size
    parts: tuple[list[Sample], list[Sample]] = ([], [])
    for n, sample in enumerate(samples):
        parts[order[rollout_key(sample, n)] >= keep].append(sample)
    return Trimmed(*parts)


def rollout_key(sample: Sample, row: int) -> tuple[Any, ...]:
    """What tells a sample's rollout from the others of a flat batch; `row` stands in for a missing id."""
    effective = sample.effective_id
    return (sample.group_index, effective) if effective is not None else (sample.group_index, "row", row)


def _list(value: Any, place: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise RolloutIdentityError(f"{place}: {type(value).__name__} is not a list")
    return value
