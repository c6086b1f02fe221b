"""Figures as they are logged: those of a training rollout, and those of an evaluation, data set by data set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from miles_sim.rollout.batch import rollout_key
from miles_sim.rollout.metrics import compute_metrics
from miles_sim.rollout.metrics_rewards import mean_reward, pass_rates, rewarded
from miles_sim.rollout.metrics_time import throughput
from miles_sim.rollout.sample import Sample


@dataclass(frozen=True)
class EvalSet:
    """What became of one data set."""

    samples: Sequence[Sample]
    n: int = 1
    """Rollouts asked for of each prompt of this set."""
    reward_key: str | None = None


def train_metrics(
    samples: Sequence[Sample],
    *,
    seconds: float | None = None,
    gpus: int | None = None,
    n: int | None = None,
    reward_key: str | None = None,
    current_version: int | None = None,
) -> dict[str, float]:
    """`rollout/…`, with `seconds` also `perf/…`, with `n` also `passrate/…`; all finite, whatever was aborted."""
    figures = _under("rollout/", compute_metrics(samples, reward_key=reward_key, current_version=current_version))
    if seconds is not None:
        figures |= _under("perf/", throughput(samples, seconds, gpus=gpus))
    if n is not None:
        figures |= _under("passrate/", pass_rates(samples, n, reward_key=reward_key))
    return figures


def eval_metrics(sets: Mapping[str, EvalSet], *, current_version: int | None = None) -> dict[str, float]:
    """For each set `eval/{name}`, the mean reward of its rollouts that have one, and beside it `-none_reward_ratio`
    (rollouts that have none), `-truncated_ratio`, `-pass@k` by the set's own `n`, and `/…` as in training.

    A set without rollouts gives nothing, one without rewards no mean.
    """
    figures: dict[str, float] = {}
    for name, data in sets.items():
        samples, key = data.samples, data.reward_key
        own = compute_metrics(samples, reward_key=key, current_version=current_version)
        if not samples:
            continue
        rollouts = len({rollout_key(sample, row) for row, sample in enumerate(samples)})
        figures[f"eval/{name}-none_reward_ratio"] = 1 - rewarded(samples, key) / rollouts
        reward = mean_reward(samples, key)
        if reward is not None:
            figures[f"eval/{name}"] = reward
        figures[f"eval/{name}-truncated_ratio"] = own["truncated_ratio"]
        figures |= _under(f"eval/{name}-", pass_rates(samples, data.n, reward_key=key))
        figures |= _under(f"eval/{name}/", own)
    return figures


def _under(prefix: str, figures: Mapping[str, float]) -> dict[str, float]:
    return {prefix + name: value for name, value in figures.items()}
