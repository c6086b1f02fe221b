"""miles' own trainer side: validation, train data, metrics. Standard library and miles only."""

import importlib
import inspect
import itertools
import types
from argparse import Namespace
from copy import deepcopy
from typing import Any

from .miles_release import ENGINE_ACTOR, Release, exists, replace
from .plain import scrubbed
from .views import figures, give_rewards, groups_of, samples_of, train_columns
from .worker import error_document

_PACKAGE = "miles.ray.rollout"


def _package(release: Release) -> Any:
    """The trainer side. Only a release that keeps it in one module needs the engine actor with it."""
    if not exists(f"{_PACKAGE}.metrics"):
        try:
            importlib.import_module(ENGINE_ACTOR)
        except Exception:  # no GPU stack: any of many errors
            replace(ENGINE_ACTOR, release.stand_ins)
    return importlib.import_module(_PACKAGE)


def _part(module: str, name: str) -> Any:
    """A function of the trainer side; None: this state has none of that name."""
    if not exists(f"{_PACKAGE}.{module}"):
        return None
    return getattr(importlib.import_module(f"{_PACKAGE}.{module}"), name, None)


class Batch:
    """The three functions of the trainer side, as far as this release has them."""

    def __init__(self, release: Release) -> None:
        self.validate: Any = None
        self.convert: Any = None
        self.metrics: Any = None
        try:
            package = _package(release)
            if hasattr(package, "RolloutManager"):
                self._from_manager(package)
            else:
                self._from_modules()
        except Exception as error:
            reason = f"{_PACKAGE} cannot be imported: {type(error).__name__}: {error}"
        else:
            reason = f"{_PACKAGE} has no such part"
        self._tell(release, reason)

    def _tell(self, release: Release, reason: str) -> None:
        parts = {"validate": self.validate, "train_data": self.convert, "metrics": self.metrics}
        release.absent.update({f"batch.{name}": reason for name, part in parts.items() if part is None})
        release.absent.update(dict.fromkeys(("batch.trim", "batch.shards"), "this adapter does not play that part"))

    def _from_manager(self, package: Any) -> None:
        """Release 0.0.2: conversion is a pair of methods of a Ray actor, which need nothing else of it."""
        manager = package.RolloutManager.__ray_metadata__.modified_class
        hooks = {"custom_reward_post_process_func": None, "custom_convert_samples_to_train_data_func": None}

        def convert(args: Namespace, samples: list[Any]) -> Any:
            own = types.SimpleNamespace(args=args, **hooks)
            own._post_process_rewards = types.MethodType(manager._post_process_rewards, own)
            return manager._convert_samples_to_train_data(own, samples)

        self.convert = convert
        self.metrics = package.compute_metrics_from_samples

    def _from_modules(self) -> None:
        """Later states: one module a task, each of them a few weeks older or younger than the others."""
        self.validate = _part("rollout_data_conversion", "validate_compact_rollout_ids")
        conversion = _part("train_data_conversion", "convert_samples_to_train_data")
        if conversion is not None:
            settings: dict[str, Any] = {"metadata": {}, "custom_convert_samples_to_train_data_func": None}
            settings["custom_reward_post_process_func"] = None
            known = inspect.signature(conversion).parameters
            self.convert = lambda args, samples: conversion(
                args, samples, **{name: value for name, value in settings.items() if name in known}
            )
        self.metrics = _part("metrics", "_compute_metrics_from_samples") or _part(
            "metrics", "compute_metrics_from_samples"
        )

    def view(self, args: Namespace, returned: list[Any], rewards: str) -> dict[str, Any] | None:
        """A `BatchView` document of what all rollouts returned; they stay as they are."""
        if self.validate is None and self.convert is None and self.metrics is None:
            return None
        view: dict[str, Any] = {"error": None, "train_data": None, "metrics": None}
        groups = deepcopy(groups_of(returned))
        samples = [sample for item in itertools.chain.from_iterable(groups) for sample in samples_of(item)]
        if not samples:
            return view
        try:
            if self.validate is not None:
                self.validate(groups)
            give_rewards(groups, rewards)
            if self.convert is not None:
                view["train_data"] = train_columns(self.convert(args, samples))
            if self.metrics is not None:
                view["metrics"] = figures(self.metrics(args, samples))
        except Exception as error:
            view["error"] = scrubbed(error_document(error))
        return view
