"""Selection: which paths of the tree become samples."""

from itertools import pairwise
from math import inf

from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.rule import RolloutCase

from ._struck import EXTRA, forgone
from ._truth import SOUND_HOOKS, fits, has_compaction, has_subagents, hook_fails, step_keys, trained


@rule(
    "selection/retry-dropped",
    level="meaning",
    reason="The answer that the agent threw away is trained with the reward of the one that it used.",
    source="design 6.4; miles drop_retries",
)
def retry_dropped(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """No sample holds a generation that was asked again, unless another path stands on it."""
    if rollout.view.error is not None:
        return
    present = _present(rollout)
    for node in rollout.lineage.dropped:
        see.that(
            node.generation.id not in present,
            "a generation that was asked again is in a sample",
            expected="dropped",
            found=f"sample {present.get(node.generation.id)}",
            detail=f"step {node.step}",
        )


@rule(
    "selection/subagent-kept",
    level="meaning",
    reason="A subagent that forks from an earlier turn makes the main line look like an abandoned attempt.",
    source="design 6.4; miles drop_retries takes any later sibling for a retry",
)
def subagent_kept(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """Where subagents ran, the end of every path, theirs and the main line's, is the end of a sample."""
    if has_subagents(case):
        _see_leaves(case, rollout, see, set())


@rule(
    "selection/compaction-kept",
    level="meaning",
    reason="What the agent did before it compacted its history is half of its work.",
    source="miles PR #2368 (leaves made by compaction); design 6.4",
)
def compaction_kept(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """Where history was compacted, the main line's paths before and after it are all samples."""
    if has_compaction(case):
        _see_leaves(case, rollout, see, set(step_keys(case.scenario.plan.steps, "subagent")))


@rule(
    "selection/order-stable",
    level="meaning",
    needs={"session.v2"},
    severity="should",
    reason="Trimming, dumps and comparisons go by position; an order of chance makes runs differ.",
    source="miles drop_retries: longest path first, then latest commit",
)
def order_stable(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """Samples come longest path first; of equally long ones, that of the later step first.

    What ran at the same time may come in any order. What was asked several times, and which time's reply was lost
    nobody can say, has its place between the first and the last of them.
    """
    if case.scenario.max_seq_len is not None or case.scenario.hooks.picker != "default":
        return  # a cut sample does not show the length of its path; and a picker's order is its own
    when = _when(case, rollout)
    places = [(number, len(found.spans), when[found.generations[-1].id]) for number, _, found in trained(rollout)]
    for (_, length, place), (number, next_length, next_place) in pairwise(places):
        see.that(
            length > next_length or (length == next_length and place[1] >= next_place[0]),
            "samples are not ordered by path length, then latest step",
            expected=f"a path of at most {length} turns, committed earlier if equally long",
            found=f"{next_length} turns",
            detail=f"sample {number}",
        )


@rule(
    "selection/hooks-contained",
    level="meaning",
    needs={"hooks"},
    reason="A picker of one's own that fails must cost its rollout by name, never hand the trainer samples it made up.",
    source="miles session v2 core (422 for a hook that fails); design 6.4, 6.7",
)
def hooks_contained(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """A sound hook decides which samples there are; one that fails is an error that names it, and leaves no sample."""
    hooks = case.scenario.hooks
    if hooks == type(hooks)() or not rollout.lineage.nodes:
        return
    error = rollout.view.error
    if hook_fails(case):
        which = "postprocessor" if hooks.picker in SOUND_HOOKS else "picker"
        told = error is not None and which in error.message
        found = f"{error.type}: {error.message}" if error else f"{len(rollout.samples)} samples"
        see.that(told, f"a {which} that fails", expected=f"an error that names the {which}", found=found)
        see.equal(len(rollout.samples), 0, f"samples beside a {which} that fails")
    elif see.that(error is None, "a sound hook failed", expected="samples", found=error.message if error else ""):
        chosen = [leaf.step for leaf in rollout.lineage.leaves]
        ends = [rollout.lineage.by_id[found.generations[-1].id].step for _, _, found in trained(rollout)]
        see.equal(sorted(ends), sorted(chosen), "paths that became samples are not those that the picker chose")
        if hooks.postprocessor == "marks":
            marks = [sample.metadata.get("marked") for _, sample, _ in trained(rollout)]
            see.equal(marks, [True] * len(chosen), "what the post-processor wrote is not on each sample")


def _when(case: Case, rollout: RolloutCase) -> dict[str, tuple[float, float]]:
    """Generation id to the first and the last place in the plan at which it may have been committed."""
    order = {turn.step: place for place, turn in enumerate(rollout.turns)}
    parallel = set(step_keys(case.scenario.plan.steps, "parallel"))
    times: dict[str, list[int]] = {}
    for turn in rollout.turns:
        times.setdefault(rollout.question(turn), []).append(order[turn.step])
    found: dict[str, tuple[float, float]] = {}
    for node in rollout.lineage.nodes:
        step = node.step.partition("^")[0]
        asked = [order[step]] if node.told else times[rollout.question(node.turn)]
        together = (
            step in parallel or EXTRA in step or (not node.told and any(f"{step}{EXTRA}" in each for each in order))
        )
        found[node.generation.id] = (-inf, inf) if together else (min(asked), max(asked))
    return found


def _present(rollout: RolloutCase) -> dict[str, int]:
    """Generation id to the first sample that holds it."""
    present: dict[str, int] = {}
    for number, _, found in trained(rollout):
        for generation in found.generations:
            present.setdefault(generation.id, number)
    return present


def _see_leaves(case: Case, rollout: RolloutCase, see: Recorder, without: set[str]) -> None:
    if rollout.view.error is not None or forgone(case, rollout):
        return
    ends = {found.generations[-1].id for _, _, found in trained(rollout)}
    for leaf in rollout.lineage.leaves:
        if leaf.step not in without and fits(leaf.generation, case.scenario.max_seq_len):
            see.that(
                leaf.generation.id in ends,
                "a path was dropped",
                expected="a sample that ends here",
                found=f"{len(ends)} samples that end elsewhere",
                detail=f"step {leaf.step}",
            )
