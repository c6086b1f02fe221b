"""What miles' own trainer side makes of a play's rollouts. Standard library and miles only."""

from argparse import Namespace
from copy import deepcopy
from typing import Any

from .miles_release import Release
from .miles_trainer import PACKAGE, Trainer, find_trainer, flat
from .plain import plain, scrubbed
from .views import figures, give_rewards, groups_of, train_columns
from .worker import error_document


class Batch:
    """Validation, trimming, train data, shards and metrics, as far as this release has them."""

    def __init__(self, release: Release) -> None:
        self._trainer = Trainer()
        try:
            self._trainer = find_trainer(release)
        except Exception as error:
            reason = f"{PACKAGE} cannot be imported: {type(error).__name__}: {error}"
        else:
            reason = f"{PACKAGE} has no such part"
        parts = {"validate": "validate", "train_data": "convert", "trim": "trim", "shards": "split"}
        for capability, part in {**parts, "metrics": "metrics"}.items():
            if getattr(self._trainer, part) is None:
                release.absent[f"batch.{capability}"] = reason

    def view(self, args: Namespace, returned: list[Any], batch: dict[str, Any]) -> dict[str, Any] | None:
        """A `BatchView` document of what all rollouts returned; they stay as they are. `batch`: as `Job` has it."""
        if self._trainer == Trainer():
            return None
        view: dict[str, Any] = {"error": None, "train_data": None, "metrics": None}
        groups = deepcopy(groups_of(returned))
        if not flat(groups):
            return view
        give_rewards(groups, batch["rewards"])
        try:
            self._fill(view, args, groups, batch["dp_size"], batch.get("rollout_time"))
        except Exception as error:
            view["error"] = scrubbed(error_document(error))
        return view

    def _fill(
        self, view: dict[str, Any], args: Namespace, groups: list[Any], ranks: int, seconds: float | None
    ) -> None:
        """In the trainer's order; what comes before an error stays in the view."""
        trainer, everything, told = self._trainer, flat(groups), None
        samples = everything
        if trainer.validate is not None:
            trainer.validate(groups)
        if trainer.trim is not None:
            samples, told = trainer.trim(args, groups, ranks)
            view["dropped"] = _left_out(everything, samples)
        if trainer.convert is not None:
            data = trainer.convert(args, samples, told)
            view["train_data"] = train_columns(data)
            if trainer.split is not None:
                columns = sorted(data)
                view["shards"] = [_shard_view(shard, columns) for shard in trainer.split(args, data, ranks)]
        if trainer.metrics is not None:
            view["metrics"] = figures(trainer.metrics(args, samples))
            if seconds is not None and trainer.throughput is not None:
                view["metrics"] |= figures(trainer.throughput(args, samples, seconds), "perf/")


def _left_out(everything: list[Any], kept: list[Any]) -> list[int]:
    """Effective ids of the rollouts of which no sample is kept."""
    ids = [_effective_id(sample) for sample in everything]
    there = {_effective_id(sample) for sample in kept}
    return list(dict.fromkeys(id for id in ids if id is not None and id not in there))


def _effective_id(sample: Any) -> int | None:
    own: int | None = getattr(sample, "rollout_id", None)
    other: int | None = sample.index
    return other if own is None else own


def _shard_view(shard: Any, columns: list[str]) -> dict[str, Any]:
    return {
        "columns": [name for name in columns if name in shard],
        "partition": plain(list(shard["partition"])),
        "rollout_ids": plain(list(shard.get("rollout_ids", ()))),
        "num_microbatches": plain(list(shard.get("num_microbatches", ()))),
    }
