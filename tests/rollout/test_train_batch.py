"""From what rollouts returned to shards: the whole way, against an account kept by (prompt, rollout)."""

import copy
import statistics
from dataclasses import dataclass, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.errors import BatchError, RewardError, RolloutIdentityError
from miles_sim.rollout.rewards import EPSILON
from miles_sim.rollout.sample import Sample, Status
from miles_sim.rollout.train_batch import BatchSettings, train_batch


@dataclass
class Rollout:
    """What the account knows of one rollout."""

    group: int
    number: int
    masks: list[list[int]]
    reward: float

    def samples(self) -> Any:
        """As `generate` returns it: a list of siblings, or a single sample that keeps its index."""
        made = [
            Sample(
                group_index=self.group,
                index=self.number,
                rollout_id=self.number if len(self.masks) > 1 else None,
                tokens=[self.number, leaf, *([7] * len(mask))],
                response_length=len(mask),
                loss_mask=list(mask),
                rollout_log_probs=[-float(leaf)] * len(mask),
                reward=self.reward,
                status=Status.COMPLETED,
            )
            for leaf, mask in enumerate(self.masks)
        ]
        return made if len(made) > 1 else made[0]


masks = st.lists(st.lists(st.integers(0, 1), max_size=5), min_size=1, max_size=3)
plans = st.lists(
    st.lists(st.tuples(masks, st.sampled_from([0.0, 0.25, 1.0])), min_size=1, max_size=4), min_size=1, max_size=4
)


def account(plan: Any) -> list[Rollout]:
    numbered = [(group, own) for group, members in enumerate(plan) for own in members]
    return [Rollout(group, number, *own) for number, (group, own) in enumerate(numbered)]


def nested(rollouts: list[Rollout], random: Any = None) -> list[Any]:
    groups: dict[int, list[Any]] = {}
    for rollout in random.sample(rollouts, len(rollouts)) if random else rollouts:
        groups.setdefault(rollout.group, []).append(rollout.samples())
    return list(groups.values())


@given(plan=plans, size=st.integers(1, 3), dp_size=st.integers(1, 2), random=st.randoms(use_true_random=False))
def test_shards_agree_with_an_account_by_prompt_and_rollout(plan: Any, size: int, dp_size: int, random: Any) -> None:
    rollouts = account(plan)
    steps = [rollouts[n : n + size] for n in range(0, len(rollouts) // size * size, size)]
    settings = BatchSettings(global_batch_size=size, dp_size=dp_size)
    if not steps or any(sum(len(r.masks) for r in step) < dp_size for step in steps):
        with pytest.raises(BatchError):
            train_batch(nested(rollouts), settings)
        return
    made = train_batch(nested(rollouts, random), settings)
    left = rollouts[len(steps) * size :]
    assert {(s.group_index, s.index) for s in made.dropped} == {(r.group, r.number) for r in left}
    assert len(made.dropped) == sum(len(r.masks) for r in left)
    assert made.data["tokens"] == [s.tokens for s in made.samples]
    seen = []
    for shard in made.shards:
        for row, tokens in enumerate(shard["tokens"]):
            rollout, mask = rollouts[tokens[0]], rollouts[tokens[0]].masks[tokens[1]]
            seen.append((tokens[0], tokens[1]))
            assert shard["rollout_ids"][row] == rollout.number
            assert shard["loss_masks"][row] == mask
            assert shard["response_lengths"][row] == len(mask)
            assert shard["rollout_log_probs"][row] == [-float(tokens[1])] * len(mask)
            assert shard["rollout_mask_sums"][row] == sum(map(sum, rollout.masks))
            assert shard["raw_reward"][row] == rollout.reward
            rewards = [other.reward for other in rollouts if other.group == rollout.group]
            expected = rollout.reward - statistics.fmean(rewards)
            if len(set(rewards)) > 1:
                expected /= statistics.stdev(rewards) + EPSILON
            assert shard["rewards"][row] == pytest.approx(expected)
    assert sorted(seen) == [(r.number, leaf) for step in steps for r in step for leaf in range(len(r.masks))]


def test_a_sentinel_in_every_column_reaches_the_shards() -> None:
    rollouts = account([[([[1]], 1.0)], [([[1]], 0.0)]])
    groups = nested(rollouts)
    groups[1][0].train_metadata = {"only": "here"}
    groups[1][0].weight_versions = ["4"]
    groups[1][0].metadata["round_number"] = groups[0][0].metadata["round_number"] = 2
    made = train_batch(groups, BatchSettings(dp_size=2))
    for shard in made.shards:
        assert made.data.keys() <= shard.keys()
        assert shard["dynamic_global_batch_size"] == 2
    (shard,) = [shard for shard in made.shards if shard["rollout_ids"] == [1]]
    assert (shard["metadata"], shard["weight_versions"], shard["round_number"]) == ([{"only": "here"}], [["4"]], [2])


@pytest.mark.parametrize(
    ("limits", "count"), [({}, 1), ({"micro_batch_size": 1}, 4), ({"micro_batch_size": 2}, 2), ({"max_tokens": 1}, 4)]
)
def test_limits_of_a_micro_batch_are_kept(limits: dict[str, int], count: int) -> None:
    groups = nested(account([[([[1]], 1.0), ([[1]], 0.0)], [([[1]], 1.0), ([[1]], 0.0)]]))
    (shard,) = train_batch(groups, BatchSettings(**limits)).shards
    assert shard["num_microbatches"] == [count]


def test_nothing_of_the_samples_changes() -> None:
    groups = nested(account([[([[1], [0, 1]], 1.0), ([[1]], 0.0)]]))
    before = copy.deepcopy(groups)
    train_batch(groups, BatchSettings())
    assert groups == before


def test_a_batch_with_aborted_placeholders_goes_through() -> None:
    """One failing agent of several, and a whole group of them."""
    groups = nested(account([[([[1]], 1.0), ([[1]], 0.0)]]))
    groups[0].append(Sample(index=8, group_index=0, rollout_id=8, status=Status.ABORTED))
    groups.append([Sample(index=9, group_index=1, status=Status.ABORTED)])
    made = train_batch(groups, BatchSettings(dp_size=2))
    assert made.data["rewards"][2:] == [0.0, 0.0]
    assert made.data["rewards"][0] == pytest.approx(-made.data["rewards"][1])


def test_the_reward_that_a_key_names_is_the_one_that_counts() -> None:
    groups = nested(account([[([[1]], 1.0), ([[1]], 0.0)]]))
    for sample in groups[0]:
        sample.reward = {"score": sample.reward, "other": 5.0}
    made = train_batch(groups, BatchSettings(reward_key="score", normalize="none"))
    assert made.data["rewards"] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        (lambda g: g[0][1].__setattr__("index", 0), RolloutIdentityError, "effective id 0"),
        (lambda g: g[0][0].__setattr__("reward", None), RewardError, "row 0: reward: None"),
        (lambda g: g.append([]), BatchError, "a group without rollouts"),
        (lambda g: g.clear(), BatchError, "batch: 0 rollouts are fewer than global_batch_size=2"),
        (lambda g: g[0].pop(), BatchError, "batch: 1 rollouts are fewer than global_batch_size=2"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(change: Any, error: type[Exception], named: str) -> None:
    groups = nested(account([[([[1]], 1.0), ([[1]], 0.0)]]))
    change(groups)
    with pytest.raises(error, match=named):
        train_batch(groups, BatchSettings(global_batch_size=2))


@pytest.mark.parametrize(
    "options",
    [{"dp_size": 0}, {"global_batch_size": 0}, {"micro_batch_size": "1"}, {"max_tokens": 1.0}, {"unequal": "sum"}],
)
def test_odd_settings_are_refused_by_name(options: dict[str, Any]) -> None:
    (name,) = options
    assert name in {field.name for field in fields(BatchSettings)}
    with pytest.raises(BatchError, match=name):
        BatchSettings(**options)
