"""The trainer side of a miles, in whichever shape it comes."""

import sys
import types

import pytest

from miles_sim.targets import miles_trainer
from miles_sim.targets.miles_batch import Batch
from miles_sim.targets.miles_release import Release


class Status:
    value = "completed"


class Sample:
    def __init__(self, index, rollout_id=None):
        self.index, self.rollout_id, self.group_index = index, rollout_id, 0
        self.status, self.reward, self.metadata = Status(), None, {"reward": 1.0}


@pytest.fixture
def release():
    return Release("1", Sample, None, None, None, None, None)


@pytest.fixture
def modules(monkeypatch):
    """`modules(name={function: …})` puts miles.ray.rollout and these modules of it in place."""

    def place(**contents):
        package = types.ModuleType(miles_trainer.PACKAGE)
        monkeypatch.setitem(sys.modules, miles_trainer.PACKAGE, package)
        names = {f"{miles_trainer.PACKAGE}.{name}": functions for name, functions in contents.items()}
        for name, functions in names.items():
            module = types.ModuleType(name)
            vars(module).update(functions)
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(miles_trainer, "exists", lambda name: name in names)

    return place


BATCH = {"rewards": "rollout", "dp_size": 2}


def test_parts_that_are_not_there_are_told_with_the_reason(modules, release):
    modules(metrics={"compute_metrics_from_samples": lambda args, samples: {}})
    Batch(release)
    reason = "miles.ray.rollout has no such part"
    assert release.absent == {f"batch.{name}": reason for name in ("validate", "train_data", "trim", "shards")}


def test_a_batch_goes_the_trainers_way_and_what_was_cut_off_is_told(modules, release):
    def trim(args, groups, train_parallel_config):
        samples = [sample for group in groups for sample in group]
        return samples[: len(samples) // train_parallel_config["dp_size"] * train_parallel_config["dp_size"]], {"n": 7}

    def convert(args, samples, metadata, custom_reward_post_process_func):
        return {"rollout_ids": [s.index for s in samples], "rewards": [s.reward for s in samples], "n": metadata["n"]}

    def split(args, data, *, dp_size):
        return [
            {"partition": range(rank, 2, dp_size), "rollout_ids": data["rollout_ids"][rank::dp_size]}
            for rank in range(dp_size)
        ]

    modules(
        rollout_data_conversion={"postprocess_rollout_data": trim},
        train_data_conversion={"convert_samples_to_train_data": convert, "split_train_data_by_dp_raw": split},
        metrics={
            "_compute_metrics_from_samples": lambda args, samples: {"count": len(samples)},
            "_compute_perf_metrics_from_samples": lambda args, samples, seconds: {"rate": len(samples) / seconds},
        },
    )
    samples = [Sample(0), Sample(1), Sample(2)]
    view = Batch(release).view(None, samples, {**BATCH, "rollout_time": 4})
    assert view["error"] is None
    assert view["train_data"] == {"rollout_ids": [0, 1], "rewards": [1.0, 1.0], "n": 7}
    assert view["dropped"] == [2]
    assert [shard["partition"] for shard in view["shards"]] == [[0], [1]]
    assert view["shards"][0]["columns"] == ["rollout_ids"]
    assert view["metrics"] == {"rollout/count": 2.0, "perf/rate": 0.5}
    assert samples[0].reward is None, "the rollouts' own samples stay as they are"


def test_what_comes_before_an_error_is_told_with_it(modules, release):
    def convert(args, samples):
        raise ValueError("row 0 has no reward")

    modules(
        rollout_data_conversion={"postprocess_rollout_data": lambda args, groups, train_parallel_config: ([], None)},
        train_data_conversion={"convert_samples_to_train_data": convert},
        metrics={},
    )
    view = Batch(release).view(None, [Sample(4)], BATCH)
    assert view["dropped"] == [4]
    assert view["error"]["message"] == "row 0 has no reward"


class RolloutManager:
    """As release 0.0.2 has it: an actor whose methods lean on what its start-up set."""

    def _get_rollout_data(self, rollout_id):
        data = self.generate_rollout(rollout_id).samples
        self.kept = [sample for group in data for sample in group][: self.train_parallel_config["dp_size"]]
        return self.kept, None

    def _convert_samples_to_train_data(self, samples):
        return {"tokens": [[1]] * len(samples), "kept": len(self.kept)}

    def _split_train_data_by_dp(self, data, dp_size):
        store = sys.modules[miles_trainer.PACKAGE].ray
        return [types.SimpleNamespace(inner=store.put({"partition": [rank], **data})) for rank in range(dp_size)]


def test_an_actor_is_played_without_ray(monkeypatch, release):
    package = types.ModuleType(miles_trainer.PACKAGE)
    actor = types.SimpleNamespace(__ray_metadata__=types.SimpleNamespace(modified_class=RolloutManager))
    package.RolloutManager, package.ray = actor, "a cluster"
    package.compute_metrics_from_samples = lambda args, samples: {"count": len(samples)}
    base = types.ModuleType("miles.rollout.base_types")
    base.RolloutFnTrainOutput = lambda samples: types.SimpleNamespace(samples=samples)
    for name, module in {miles_trainer.PACKAGE: package, base.__name__: base}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(miles_trainer, "exists", lambda name: True)
    view = Batch(release).view(None, [Sample(0), Sample(1), Sample(2)], BATCH)
    assert view["error"] is None
    assert view["train_data"] == {"tokens": [[1], [1]], "kept": 2}
    assert view["dropped"] == [2]
    assert [shard["partition"] for shard in view["shards"]] == [[0], [1]]
    assert package.ray == "a cluster"
    assert miles_trainer.OBJECT_STORE in release.stand_ins
