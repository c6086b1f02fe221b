"""The trainer side of miles-sim's own implementation, as an observation shows it."""

from copy import deepcopy
from typing import Any

from miles_sim.rollout.batch import flatten, validate_rollout_ids
from miles_sim.rollout.metrics import compute_metrics
from miles_sim.rollout.sample import Sample, Status
from miles_sim.rollout.train_data import to_train_data
from miles_sim.targets.plain import scrubbed
from miles_sim.targets.views import figures, groups_of, train_columns
from miles_sim.targets.worker import error_document


def batch_view(returned: list[Any]) -> dict[str, Any]:
    """A `BatchView` document of what all rollouts returned; they stay as they are."""
    view: dict[str, Any] = {"error": None, "train_data": None, "metrics": None}
    nested = deepcopy(groups_of(returned))
    if not nested:
        return view
    try:
        validate_rollout_ids(nested)
        samples = flatten(nested)
        for sample in samples:
            _give_reward(sample)
        view["train_data"] = train_columns(to_train_data(samples, normalize="std"))
        view["metrics"] = figures(compute_metrics(samples))
    except Exception as error:
        view["error"] = scrubbed(error_document(error))
    return view


def _give_reward(sample: Sample) -> None:
    """As `Job` says: a reward model that looks at the metadata."""
    if sample.reward is None and sample.status is not Status.ABORTED:
        sample.reward = sample.metadata.get("reward", 0.0)
