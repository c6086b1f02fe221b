"""What scenario and ledger say must come out: the oracles that several rule modules share."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from miles_sim.agent.plan import keyed, walk
from miles_sim.agent.steps import Compact, Crash, Parallel, Retry, Say, Step, Subagent, Tool
from miles_sim.faults.catalogue import kind_named
from miles_sim.ledger import Generation, Turn
from miles_sim.scenarios.model import RolloutInput
from miles_sim.targets.observation import SampleView
from miles_sim.verify.alignment import Alignment
from miles_sim.verify.rule import Case, RolloutCase

FINAL = {"stop": "completed", "length": "truncated", "abort": "aborted"}
"""Finish reason of a sample's last generation to the sample's status."""

UNFINISHED = frozenset({"length", "abort"})
"""Finish reasons of a reply that was cut: a server may refuse to go on from it."""

SOUND_HOOKS = frozenset({"default", "all", "earliest", "latest", "none", "marks"})
"""Hooks that give a list of samples that they were given, each once."""

SERVER_OWNED = frozenset({"accumulated_token_ids", "tito_session_mismatch", "leaf", "messages", "lifecycle"})
"""Metadata keys that a session server writes itself."""

MAY_BE_OWNED = frozenset({"dropped", "agent_error", "engine_error", "halted"})
"""Further ones, which some implementations write: what others put under them may cross, be left out or be refused."""


def effective_id(source: RolloutInput | SampleView) -> int | None:
    """`rollout_id`, else `index`: what the trainer groups by. 0 is an id."""
    return source.rollout_id if source.rollout_id is not None else source.index


def must_be_rejected(case: Case, source: RolloutInput) -> bool:
    """A tree session cannot name this rollout's samples."""
    return case.session == "v2" and effective_id(source) is None


def ids_clash(case: Case) -> bool:
    """Two rollouts of the batch have one effective id."""
    ids = [id for source in case.scenario.rollouts if (id := effective_id(source)) is not None]
    return len(set(ids)) < len(ids)


def rewards_clash(case: Case) -> bool:
    """Siblings have different rewards, where rewards are normalized by rollout."""
    if case.scenario.batch.rewards != "sample" or case.scenario.batch.normalize == "none":
        return False
    scored = ([s for s in rollout.samples if s.status != "aborted"] for rollout in case.rollouts)
    return any(len(samples) > 1 for samples in scored)


def hook_fails(case: Case) -> bool:
    """A picker or post-processor of the scenario raises, or gives what no hook may."""
    hooks = case.scenario.hooks
    return not {hooks.picker, hooks.postprocessor} <= SOUND_HOOKS


def step_is_filled(case: Case) -> bool:
    """There are rollouts enough for one training step."""
    size = case.scenario.batch.global_batch_size
    return sum(bool(rollout.samples) for rollout in case.rollouts) >= (size or case.scenario.batch.dp_size)


def mask(sample: SampleView) -> Sequence[int]:
    """The loss mask as the trainer reads it: None is all ones, a removed sample all zeros."""
    if sample.remove_sample:
        return (0,) * sample.response_length
    return (1,) * sample.response_length if sample.loss_mask is None else sample.loss_mask


def goes_on_from_a_cut(rollout: RolloutCase, turn: Turn) -> bool:
    """The reply that a request goes on from was cut: a server may refuse it, however often it is asked."""
    parent = rollout.lineage.by_step.get(turn.parent) if turn.parent is not None else None
    return parent is not None and parent.generation.finish_reason.get("type") in UNFINISHED


def trained(rollout: RolloutCase) -> Iterator[tuple[int, SampleView, Alignment]]:
    """Number, sample and alignment of each sample that holds at least one generation."""
    for number, (sample, found) in enumerate(zip(rollout.samples, rollout.alignments, strict=True)):
        if found.spans:
            yield number, sample, found


def fits(generation: Generation, limit: int | None) -> bool:
    """Some of it, or its empty reply, stands within `max_seq_len`."""
    room = 1 if generation.output_ids else 0
    return limit is None or len(generation.prompt_ids) + room <= limit


def nothing_to_train(case: Case, rollout: RolloutCase) -> bool:
    """No generation was recorded, or none fits `max_seq_len`: the rollout ends in a placeholder."""
    return not any(fits(node.generation, case.scenario.max_seq_len) for node in rollout.lineage.kept)


def is_cut(rollout: RolloutCase, found: Alignment) -> bool:
    """Recorded ids of this sample's path are missing at its end."""
    last = found.spans[-1]
    node = rollout.lineage.by_id[last.generation.id]
    return not last.whole or bool(rollout.lineage.children[node.step])


def agent_finished(case: Case, rollout: RolloutCase) -> bool:
    """The agent function came to its end and so returned the plan's metadata."""
    steps = list(walk(case.scenario.plan.steps))
    asks = {key for key, step in steps if isinstance(step, Say | Tool | Compact | Retry)}
    crashes = any(isinstance(step, Crash) for _, step in steps)
    answered = {turn.step for turn in rollout.turns if turn.status == 200 and turn.response_id is not None}
    struck = (kind_named(fired.kind).edge for fired in case.ledger.fired if fired.rollout == rollout.number)
    return not crashes and asks <= answered and "agent" not in struck


def step_keys(steps: tuple[Step, ...], within: str, prefix: str = "", inside: bool = False) -> Iterator[str]:
    """Keys of the steps that stand in a step of kind `within` (`subagent`, `parallel`)."""
    for key, step in keyed(steps, prefix):
        if inside:
            yield key
        if isinstance(step, Subagent):
            yield from step_keys(step.steps, within, f"{key}.", inside or within == "subagent")
        elif isinstance(step, Parallel):
            for number, branch in enumerate(step.branches, start=1):
                name = branch.key or f"{key}.{number}"
                yield from step_keys(branch.steps, within, f"{name}.", True)


def has_subagents(case: Case) -> bool:
    return any(isinstance(step, Subagent | Parallel) for step in case.scenario.plan.steps)


def has_compaction(case: Case) -> bool:
    return any(isinstance(step, Compact) for _, step in walk(case.scenario.plan.steps))


def spec_sums(generations: Iterable[Generation]) -> dict[str, int]:
    """Speculative counters over whole generations, under `Counters`' names.

    Ids that are trimmed or cut from a sample were generated all the same, so they count.
    """
    sums = dict.fromkeys(("spec_accept_token_num", "spec_draft_token_num", "spec_verify_ct", "completion_token_num"), 0)
    for generation in generations:
        if generation.spec is not None:
            sums["spec_accept_token_num"] += generation.spec.accepted
            sums["spec_draft_token_num"] += generation.spec.drafted
            sums["spec_verify_ct"] += generation.spec.verify_ct
            sums["completion_token_num"] += len(generation.output_ids)
    return sums


def counted(sample: SampleView) -> dict[str, int]:
    """A sample's speculative counters, all zero where it has none."""
    return {field: getattr(sample.spec_info, field) if sample.spec_info else 0 for field in spec_sums(())}


def ratio(above: int, below: int) -> float | None:
    """None where nothing was counted."""
    return above / below if below else None


def pools(case: Case) -> tuple[tuple[Generation, ...], ...]:
    """The generations that a batch's ratios may be pooled over, each once: those in its samples, those on the paths of
    its samples, or all on a path that is kept.

    They differ only by what max_seq_len keeps out of a sample, or of any, which the engine did generate.
    """
    present: dict[str, Generation] = {}
    sampled: dict[str, Generation] = {}
    reached: dict[str, Generation] = {}
    limit = case.scenario.max_seq_len
    for rollout in case.rollouts:
        present |= {g.id: g for found in rollout.alignments for g in found.generations}
        reached |= {node.generation.id: node.generation for node in rollout.lineage.kept}
        for path in map(rollout.lineage.path, rollout.lineage.leaves):
            if fits(path[0].generation, limit):
                sampled |= {node.generation.id: node.generation for node in path}
    if limit is None:
        return (tuple(present.values()),)
    return tuple(present.values()), tuple(sampled.values()), tuple(reached.values())


def metric(metrics: Mapping[str, float], name: str) -> float | None:
    """The metric of this name, whatever its prefix (`rollout/`); None where it is left out."""
    return next((value for key, value in metrics.items() if key == name or key.endswith(f"/{name}")), None)


def close(found: float | None, expected: float | None, within: float = 1e-9) -> bool:
    """Both None, or equal up to rounding."""
    if found is None or expected is None:
        return found is expected
    return abs(found - expected) <= within
