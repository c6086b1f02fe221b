"""Which leaves are kept, who trains what they share, and hooks that misbehave."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.collect import Collected, collect
from miles_sim.rollout.errors import AssemblyError, SettingsError
from miles_sim.rollout.sample import RESERVED, Sample
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.rollout.wire import decode_samples, encode_samples


def gather(forest: Any, settings: RolloutSettings, agent: dict[str, Any] | None = None, **changes: Any) -> Collected:
    return collect(
        forest.records,
        settings=replace(settings, **changes),
        tokenizer=forest.tokenizer,
        max_seq_len=changes.get("max_seq_len"),
        agent_metadata=agent,
    )


def leaves(collected: Collected) -> list[int]:
    return [sample.metadata["leaf"]["node_id"] for sample in collected.samples]


def distinct(forest: Any, nodes: list[Any]) -> list[Any]:
    """Of nodes whose paths end early in the same generation, the earliest."""
    ends: dict[int, Any] = {}
    for node in nodes:
        ends.setdefault(forest.usable(node.path)[-1].number, node)
    return list(ends.values())


def named_hook(samples: list[Sample], session_metadata: dict[str, Any]) -> list[Sample]:
    return samples[:1]


def test_retry_drops_its_elder(forest: Any, settings: RolloutSettings) -> None:
    root = forest.grow()
    forest.grow(root, text="again")
    forest.grow(root, text="again")
    last = forest.grow(root, text="again")
    assert leaves(gather(forest, settings)) == [last.number]


def test_roots_are_siblings_too(forest: Any, settings: RolloutSettings) -> None:
    forest.grow(text="again", finish="length")
    retry = forest.grow(text="again")
    assert leaves(gather(forest, settings)) == [retry.number]


def test_subagent_from_an_earlier_turn_drops_nothing(forest: Any, settings: RolloutSettings) -> None:
    root = forest.grow()
    main = forest.grow(root, text="go on")
    subagent = forest.grow(root, text="look into it")
    assert leaves(gather(forest, settings)) == [subagent.number, main.number]


def test_compaction_and_fresh_subagents_stay(forest: Any, settings: RolloutSettings) -> None:
    before = forest.grow(forest.grow(text="task"), text="more")
    summary = forest.grow(text="summary")
    subagent = forest.grow(text="subtask")
    assert leaves(gather(forest, settings)) == [before.number, subagent.number, summary.number]


def test_elder_with_a_life_of_its_own_stays(forest: Any, settings: RolloutSettings) -> None:
    root = forest.grow()
    continued = forest.grow(forest.grow(root, text="again"), text="more")
    later = forest.grow(root, text="again")
    assert leaves(gather(forest, settings)) == [continued.number, later.number]


@pytest.mark.parametrize("told_by", ["elder", "younger"])
def test_twins_under_way_together_both_stay(told_by: str, forest: Any, settings: RolloutSettings) -> None:
    root = forest.grow()
    elder = forest.grow(root, text="again", twins=frozenset({2} if told_by == "elder" else ()))
    younger = forest.grow(root, text="again", twins=frozenset({1} if told_by == "younger" else ()))
    assert leaves(gather(forest, settings)) == [younger.number, elder.number]


@given(data=st.data())
def test_kept_are_the_leaves_not_asked_again(data: st.DataObject, forests: Callable[..., Any], settings: Any) -> None:
    forest = forests(data.draw)

    def superseded(node: Any) -> bool:
        return any(
            later.parent is node.parent
            and (later.role, later.text) == (node.role, node.text)
            and later.number > node.number
            and node.number not in later.record.concurrent_with
            and later.number not in node.record.concurrent_with
            for later in forest.nodes
        )

    kept = distinct(forest, [node for node in forest.leaves if not superseded(node)])
    expected = sorted(kept, key=lambda node: (len(node.path), node.number), reverse=True)
    assert leaves(gather(forest, settings)) == [node.number for node in expected]


@pytest.mark.parametrize("picker", ["drop_retries", "keep_all"])
@given(data=st.data())
def test_each_sampled_id_is_trainable_once(
    picker: str, data: st.DataObject, forests: Callable[..., Any], settings: Any
) -> None:
    """Of each generation on a kept path, what any kept sample holds is trainable in exactly one of them."""
    forest = forests(data.draw)
    collected = gather(forest, settings, sample_picker=picker)
    held: dict[int, int] = {}
    for number in leaves(collected):
        path = forest.usable(forest.nodes[number].path)
        for node, kept in zip(path, forest.kept(path), strict=True):
            held[node.number] = max(held.get(node.number, 0), len(kept))
    trained: dict[tuple[int, int], int] = {}
    for sample in collected.samples:
        begin = len(sample.tokens) - sample.response_length
        positions = {
            at: (segment["node_id"], at - segment["span"][0])
            for segment in sample.metadata["lifecycle"]
            if segment["span"]
            for at in range(*segment["span"])
        }
        for at, trainable in enumerate(sample.loss_mask or [], start=begin):
            if trainable:
                trained[positions[at]] = trained.get(positions[at], 0) + 1
    assert trained == {(number, at): 1 for number, size in held.items() for at in range(size)}


def test_shared_generation_is_the_earliest_kept_leafs(forest: Any, settings: RolloutSettings) -> None:
    root = forest.grow()
    first = forest.grow(root, text="one")
    second = forest.grow(root, text="two")
    by_leaf = {sample.metadata["leaf"]["node_id"]: sample for sample in gather(forest, settings).samples}
    own = len(root.output)
    assert by_leaf[first.number].loss_mask[:own] == [1] * own
    assert by_leaf[second.number].loss_mask[:own] == [0] * own
    assert sum(by_leaf[second.number].loss_mask) == len(second.output)


def test_a_cut_within_what_leaves_share_gives_one_sample_that_counts_for_all(
    forest: Any, settings: RolloutSettings
) -> None:
    root = forest.grow(sampled=6)
    main = forest.grow(forest.grow(root, text="one"), text="more")
    aside = forest.grow(root, text="two", sampled=5)
    whole = len(root.record.prompt_ids) + len(root.output)
    for limit in range(len(root.record.prompt_ids) + 1, whole + 1):
        collected = gather(forest, settings, max_seq_len=limit)
        (sample,) = collected.samples
        assert sample.metadata["leaf"]["node_id"] == main.number
        assert [segment["node_id"] for segment in sample.metadata["lifecycle"]] == [0, 1, 2, aside.number]
        lost = sum(len(node.output) for node in forest.nodes) - sum(sample.loss_mask)
        assert sample.metadata["dropped"] == {"max_seq_len": {"turns": 3, "tokens": lost}}
        (row,) = session_rows(sample, collected, settings)
        assert row["node_id"] == main.number


def session_rows(sample: Sample, collected: Collected, settings: RolloutSettings) -> list[Any]:
    """The samples' leaves as they come out of the wire."""
    payload = encode_samples(collected.samples, collected.session_metadata, session="v2")
    return [s.metadata["leaf"] for s in decode_samples(payload, Sample(index=1), session="v2").samples]


@given(data=st.data())
def test_no_limit_gives_two_samples_of_the_same_ids(
    data: st.DataObject, forests: Callable[..., Any], settings: Any
) -> None:
    """At every position; and each generation of a path that was kept is trained, or counted as left out, in full."""
    forest = forests(data.draw)
    longest = max(len(node.record.prompt_ids) + len(node.output) for node in forest.nodes)
    limit = data.draw(st.integers(1, longest))
    collected = gather(forest, settings, max_seq_len=limit, sample_picker="keep_all")
    ends = [
        next((s["node_id"], s["span"][1]) for s in reversed(sample.metadata["lifecycle"]) if s["span"])
        for sample in collected.samples
    ]
    assert len(set(ends)) == len(ends)
    unfit = {row["node_id"] for row in collected.session_metadata.get("unfit_leaves", [])}
    told = {segment["node_id"] for sample in collected.samples for segment in sample.metadata["lifecycle"]}
    assert told == {node.number for leaf in forest.leaves if leaf.number not in unfit for node in leaf.path}
    for leaf in forest.leaves:
        assert (leaf.number in unfit) == (limit < len(leaf.path[0].record.prompt_ids) + bool(leaf.path[0].output))


def test_dropped_leaf_owns_nothing(forest: Any, settings: RolloutSettings) -> None:
    root = forest.grow()
    forest.grow(root, text="again")
    forest.grow(root, text="again")
    (sample,) = gather(forest, settings).samples
    assert sample.loss_mask[: len(root.output)] == [1] * len(root.output)


def test_agent_metadata_reaches_each_sample_unshared(forest: Any, settings: RolloutSettings) -> None:
    root = forest.grow()
    forest.grow(root)
    forest.grow(root)
    first, second = gather(forest, settings, {"reward": 0.5, "log": [1]}).samples
    assert (first.reward, second.reward) == (0.5, 0.5)
    first.metadata["log"].append(2)
    assert second.metadata["log"] == [1]


@pytest.mark.parametrize("session", ["v1", "v2"])
def test_reserved_keys_are_the_servers(session: str, forest: Any, settings: RolloutSettings) -> None:
    forest.grow()
    (plain,) = gather(forest, settings, {"note": 1}, session=session).samples
    (sample,) = gather(forest, settings, {"note": 1, **dict.fromkeys(RESERVED, "mine")}, session=session).samples
    assert sample.metadata == plain.metadata


@pytest.mark.parametrize("reward", [True, "high", {"score": 1.0}, None])
def test_only_a_scalar_reward_is_assigned(reward: Any, forest: Any, settings: RolloutSettings) -> None:
    forest.grow()
    (sample,) = gather(forest, settings, {"reward": reward}).samples
    assert sample.reward is None
    assert sample.metadata["reward"] == reward


@pytest.mark.parametrize("value", [{1}, (1,), float("nan"), {"deep": [float("inf")]}, {1: 2}])
def test_agent_metadata_that_is_not_json_is_refused_by_name(value: Any, forest: Any, settings: RolloutSettings) -> None:
    forest.grow()
    with pytest.raises(AssemblyError, match=r"agent metadata\.odd"):
        gather(forest, settings, {"odd": value})


def test_dotted_path_and_function_are_hooks(forest: Any, settings: RolloutSettings) -> None:
    forest.grow(text="a")
    forest.grow(text="b")
    assert leaves(gather(forest, settings, sample_picker=named_hook)) == [0]
    keep = "miles_sim.rollout.selection:keep_all"
    assert leaves(gather(forest, settings, sample_picker=keep)) == [0, 1]


@pytest.mark.parametrize("hook", ["drop", "no.such.module.fn", "miles_sim.rollout.sample.RESERVED", 7])
def test_hook_that_cannot_be_found_is_refused_by_name(hook: Any, forest: Any, settings: RolloutSettings) -> None:
    forest.grow()
    for setting in ("sample_picker", "sample_postprocessor"):
        with pytest.raises(SettingsError, match=f"^{setting}: {hook!r}"):
            gather(forest, settings, **{setting: hook})


def failing(samples: list[Sample], session_metadata: dict[str, Any]) -> Any:
    raise KeyError("nothing here")


def doubling(samples: list[Sample], session_metadata: dict[str, Any]) -> Any:
    return samples + samples


def nothing(samples: list[Sample], session_metadata: dict[str, Any]) -> Any:
    return None


def inventing(samples: list[Sample], session_metadata: dict[str, Any]) -> Any:
    return [Sample()]


class Later:
    """Asynchronous, which shows when it is called."""

    __name__ = "Later"

    async def __call__(self, samples: list[Sample], session_metadata: dict[str, Any]) -> Any:
        return samples


later = Later()


@pytest.mark.parametrize("hook", [failing, doubling, nothing, inventing, later])
def test_picker_that_misbehaves_is_named(hook: Any, forest: Any, settings: RolloutSettings) -> None:
    forest.grow()
    with pytest.raises(AssemblyError, match=f"sample_picker '{hook.__name__}'"):
        gather(forest, settings, sample_picker=hook)


def forgetting(sample: Sample) -> None:
    sample.metadata = {}


def losing(sample: Sample) -> None:
    sample.metadata = None  # type: ignore[assignment]


def emptying(sample: Sample) -> None:
    sample.metadata["lifecycle"].clear()


def moving(sample: Sample) -> None:
    sample.metadata["lifecycle"][0]["span"] = None


def uprooting(sample: Sample) -> None:
    del sample.metadata["leaf"]


@pytest.mark.parametrize("change", [forgetting, losing, emptying, moving, uprooting])
def test_picker_that_changes_what_a_sample_tells_of_its_path_is_named(
    change: Callable[[Sample], None], forest: Any, settings: RolloutSettings
) -> None:
    forest.grow()

    def picker(samples: list[Sample], session_metadata: dict[str, Any]) -> list[Sample]:
        change(samples[0])
        return samples

    reason = (
        r"^sample_picker '.*picker': changed metadata\.leaf or metadata\.lifecycle of a sample, which a picker leaves"
    )
    with pytest.raises(AssemblyError, match=reason):
        gather(forest, settings, sample_picker=picker)


def test_picker_may_write_metadata_of_its_own(forest: Any, settings: RolloutSettings) -> None:
    forest.grow()

    def picker(samples: list[Sample], session_metadata: dict[str, Any]) -> list[Sample]:
        samples[0].metadata["why"] = "the only one"
        return samples

    (sample,) = gather(forest, settings, sample_picker=picker).samples
    assert sample.metadata["why"] == "the only one"


@pytest.mark.parametrize("hook", [failing, doubling, nothing, later])
def test_postprocessor_that_misbehaves_is_named(hook: Any, forest: Any, settings: RolloutSettings) -> None:
    forest.grow()
    with pytest.raises(AssemblyError, match=f"sample_postprocessor '{hook.__name__}'"):
        gather(forest, settings, sample_postprocessor=hook)


@pytest.mark.parametrize("setting", ["sample_picker", "sample_postprocessor"])
def test_a_hook_of_a_setting_is_named_as_it_is_spelt_there(
    setting: str, forest: Any, settings: RolloutSettings
) -> None:
    forest.grow()
    with pytest.raises(AssemblyError, match=rf"^{setting} 'operator\.add': raised TypeError"):
        gather(forest, settings, **{setting: "operator.add"})


def test_a_hook_without_a_name_is_named_by_its_kind(forest: Any, settings: RolloutSettings) -> None:
    forest.grow()

    def broken(samples: list[Sample], session_metadata: dict[str, Any]) -> list[Sample]:
        raise KeyError("leaf")

    with pytest.raises(AssemblyError, match=r"^sample_picker 'partial': raised KeyError: 'leaf'$"):
        gather(forest, settings, sample_picker=partial(broken))
    with pytest.raises(AssemblyError, match=r"^sample_postprocessor '.*broken': raised KeyError: 'leaf'$"):
        gather(forest, settings, sample_postprocessor=broken)
