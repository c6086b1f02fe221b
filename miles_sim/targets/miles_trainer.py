"""Where this miles keeps what its trainer makes of a batch: a Ray actor's methods, or modules of functions.

Standard library and miles only.
"""

import importlib
import inspect
import itertools
import types
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .miles_release import ENGINE_ACTOR, Release, exists, replace

PACKAGE = "miles.ray.rollout"
_TRACKERS = ("wandb", "tensorboard")
"""Services for plots: figures are looked at before they get there."""
OBJECT_STORE = "ray.put"
"""Shards are handed to Ray's object store, for which a cluster would have to run; here they are handed back."""


@dataclass(frozen=True)
class Trainer:
    """The parts of the trainer side, None where this miles has none of them."""

    validate: Callable[[list[Any]], None] | None = None
    """Of the nested batch."""
    trim: Callable[[Namespace, list[Any], int], tuple[list[Any], Any]] | None = None
    """(settings, nested batch, ranks) to the samples that are trained on, and what `convert` wants to know of it."""
    convert: Callable[[Namespace, list[Any], Any], Any] | None = None
    """(settings, samples, what `trim` told) to columns of train data."""
    split: Callable[[Namespace, Any, int], list[Any]] | None = None
    """(settings, train data, ranks) to one mapping of columns a rank."""
    metrics: Callable[[Namespace, list[Any]], Any] | None = None
    throughput: Callable[[Namespace, list[Any], float], Any] | None = None
    """(settings, samples, seconds that they took)."""


def find_trainer(release: Release) -> Trainer:
    """Imports the trainer side. Only a release that keeps it in one module needs the engine actor with it."""
    if not exists(f"{PACKAGE}.metrics"):
        try:
            importlib.import_module(ENGINE_ACTOR)
        except Exception:  # no GPU stack: any of many errors
            replace(ENGINE_ACTOR, release.stand_ins)
    package = _without_trackers(release)
    return _of_manager(package, release) if hasattr(package, "RolloutManager") else _of_modules(release)


def _without_trackers(release: Release) -> Any:
    """The package, with empty modules in the place of the services that it could plot to."""
    try:
        return importlib.import_module(PACKAGE)
    except ModuleNotFoundError as error:
        if error.name not in _TRACKERS or error.name in release.stand_ins:
            raise
        replace(error.name, release.stand_ins)
        return _without_trackers(release)


def _parallel(ranks: int) -> dict[str, int]:
    """All that miles' training backends tell the rollout side of how they are laid out."""
    return {"dp_size": ranks, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1}


def _of_manager(package: Any, release: Release) -> Trainer:
    """Release 0.0.2 and older: methods of a Ray actor, of which an empty instance is enough."""
    manager = package.RolloutManager.__ray_metadata__.modified_class
    output = importlib.import_module("miles.rollout.base_types").RolloutFnTrainOutput

    def actor(args: Namespace) -> Any:
        own = object.__new__(manager)
        own.args, own.data_source, own.use_experimental_refactor = args, None, True
        own.custom_reward_post_process_func = own.custom_convert_samples_to_train_data_func = None
        return own

    def trim(args: Namespace, groups: list[Any], ranks: int) -> tuple[list[Any], Any]:
        own = actor(args)
        own.train_parallel_config = _parallel(ranks)
        own.generate_rollout = lambda *_, **__: output(samples=groups)
        return own._get_rollout_data(rollout_id=0)[0], own

    def split(args: Namespace, data: Any, ranks: int) -> list[Any]:
        with _no_object_store(package):
            return [_opened(shard) for shard in actor(args)._split_train_data_by_dp(data, ranks)]

    release.stand_ins.append(OBJECT_STORE)
    return Trainer(
        trim=trim,
        convert=lambda args, samples, own: (own or actor(args))._convert_samples_to_train_data(samples),
        split=split,
        metrics=package.compute_metrics_from_samples,
        throughput=getattr(package, "compute_perf_metrics_from_samples", None),
    )


def _of_modules(release: Release) -> Trainer:
    """Later states: one module a task, each of them a few weeks older or younger than the others."""
    return Trainer(
        validate=_part("rollout_data_conversion", "validate_compact_rollout_ids"),
        trim=_trim(_part("rollout_data_conversion", "postprocess_rollout_data")),
        convert=_convert(_part("train_data_conversion", "convert_samples_to_train_data")),
        split=_split(release),
        metrics=_metrics("compute_metrics_from_samples"),
        throughput=_metrics("compute_perf_metrics_from_samples"),
    )


def _part(module: str, name: str) -> Any:
    """A function of the trainer side; None: this state has none of that name."""
    if not exists(f"{PACKAGE}.{module}"):
        return None
    return getattr(importlib.import_module(f"{PACKAGE}.{module}"), name, None)


def _metrics(name: str) -> Any:
    return _part("metrics", f"_{name}") or _part("metrics", name)


def _trim(function: Any) -> Any:
    if function is None:
        return None
    return lambda args, groups, ranks: function(args, groups, train_parallel_config=_parallel(ranks))


def _convert(function: Any) -> Any:
    if function is None:
        return None
    hooks = {"custom_convert_samples_to_train_data_func": None, "custom_reward_post_process_func": None}
    known = inspect.signature(function).parameters

    def convert(args: Namespace, samples: list[Any], metadata: Any) -> Any:
        told = {"metadata": metadata or {}, **hooks}
        return function(args, samples, **{name: value for name, value in told.items() if name in known})

    return convert


def _split(release: Release) -> Any:
    """The way that `split_train_data_by_dp` goes, up to the object store."""
    whole = _part("train_data_conversion", "split_train_data_by_dp")
    plain = _part("train_data_conversion", "split_train_data_by_dp_raw")
    scheduled = _part("train_data_conversion", "split_train_data_by_dp_scheduled_raw")
    able = _part("train_data_conversion", "can_schedule_on_rollout_side")
    if plain is None and whole is not None:
        release.stand_ins.append(OBJECT_STORE)
        return lambda args, data, ranks: _stored(whole, args, data, ranks)
    if plain is None:
        return None

    def split(args: Namespace, data: Any, ranks: int) -> Any:
        if scheduled is not None and able is not None and able(args, data, _parallel(ranks)):
            return scheduled(args, data, train_parallel_config=_parallel(ranks))
        return plain(args, data, dp_size=ranks)

    return split


def _stored(function: Any, args: Namespace, data: Any, ranks: int) -> list[Any]:
    with _no_object_store(importlib.import_module(function.__module__)):
        return [_opened(shard) for shard in function(args, data, ranks)]


@contextmanager
def _no_object_store(module: Any) -> Iterator[None]:
    """What `module` puts into Ray's object store it gets back as it is."""
    ray, module.ray = module.ray, types.SimpleNamespace(put=lambda value: value)
    try:
        yield
    finally:
        module.ray = ray


def _opened(shard: Any) -> Any:
    return getattr(shard, "inner", shard)


def flat(groups: list[Any]) -> list[Any]:
    """The samples of a nested batch, in order."""
    while groups and isinstance(groups[0], list):
        groups = list(itertools.chain.from_iterable(groups))
    return groups
