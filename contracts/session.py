"""Session: what is left behind, what runs side by side, what must stay apart."""

from collections.abc import Mapping

from miles_sim.targets.observation import SampleView
from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.alignment import align
from miles_sim.verify.rule import RolloutCase

from ._struck import excused, fired, forgone, harmed, is_harmed, may_differ
from ._truth import (
    MAY_BE_OWNED,
    SERVER_OWNED,
    fits,
    goes_on_from_a_cut,
    hook_fails,
    must_be_rejected,
    step_keys,
    trained,
)

ABANDONED = "abandoned"
"""Kind of a turn that nobody waits for (`Scenario.abandoned`)."""

COLLECT_BREAKS = frozenset({"session-collect-lost", "session-collect-cut", "session-collect-refused"})
"""Faults that break the driver's connection while it collects."""

_SAME = (
    "tokens",
    "response_length",
    "loss_mask",
    "rollout_log_probs",
    "status",
    "weight_versions",
    "spec_info",
    "prefix_cache_info",
)
"""Fields that do not depend on the session version."""


@rule(
    "session/none-left-behind",
    level="meaning",
    needs={"leaks"},
    reason="Sessions and requests that stay open fill memory and the engine's queue over a long run.",
    source="miles agentic_tool_call deletes its session always; design 8: after faults stop, all work finishes",
)
def none_left_behind(case: Case, see: Recorder) -> None:
    """When all rollouts are over, no session and no engine request is open."""
    for what in ("sessions_open", "requests_open"):
        count = getattr(case.observation, what)
        if count is not None:
            told = f"{what.replace('_', ' ')} after the play"
            allowed = sum(what in kind.counters for rollout in case.rollouts for _, kind in fired(case, rollout))
            see.that(count <= allowed, told, expected=allowed and f"at most {allowed}", found=count)


@rule(
    "session/ends-in-samples",
    level="meaning",
    reason="One rollout's exception takes its whole batch with it.",
    source="design 6.7; miles generate returns an aborted sample where the agent fails",
)
def ends_in_samples(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """A rollout ends in samples, whatever its agent did, but for an input without an id or with a server's key."""
    if must_be_rejected(case, rollout.input) or hook_fails(case) or case.scenario.garble is not None:
        return
    error = rollout.view.error
    reserved = (SERVER_OWNED | MAY_BE_OWNED) & set(rollout.input.metadata)
    if error is not None and (is_harmed(case, rollout) or any(key in error.message for key in reserved)):
        return
    see.that(
        error is None and bool(rollout.samples),
        "the rollout ended without a sample",
        expected="samples",
        found=f"{error.type}: {error.message}" if error else "none",
    )


@rule(
    "session/requests-served",
    level="meaning",
    reason="An agent that is refused ends early, and is scored for what it was not let do.",
    source="miles PR #1826 (a first turn asked again answers 400 from then on), #858 (a user message after a reply)",
)
def requests_served(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """Every request is answered, but for one that goes on from a cut reply or asks more than the engine has."""
    settings = case.scenario.engine
    default = type(settings)()
    bounded = (settings.context_length, settings.max_queued_requests) != (
        default.context_length,
        default.max_queued_requests,
    )
    for number, turn in enumerate(rollout.turns):
        if turn.kind == ABANDONED or (case.scenario.max_nodes or len(rollout.turns)) <= number:
            continue
        cut = goes_on_from_a_cut(rollout, turn)
        if turn.status == 200 or not (cut or bounded or excused(case, rollout, turn)):
            see.equal(turn.status, 200, "a request was refused", f"step {turn.step}")


@rule(
    "session/closing-race",
    level="meaning",
    reason="A reply that comes in behind the close is recorded in a session that is gone, or kept waiting for ever.",
    source="miles PR #817 (concurrent chat and delete corrupt the session); design 6.7",
)
def closing_race(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """A request that is under way when its session is closed ends in an error, and is in no sample."""
    for turn in rollout.turns:
        if turn.kind != ABANDONED:
            continue
        see.that(
            turn.status != 200,
            "a request was answered as if its session was there still",
            expected="an error",
            found=turn.status,
        )
        see.equal(case.observation.requests_open or 0, 0, "requests to the engine that are open still")
        told = {other.response_id for other in case.ledger.turns}
        late = [generation for generation in case.ledger.generations if generation.id not in told]
        for number, sample in enumerate(rollout.samples):
            made = align(sample.tokens, sample.response_length, late, max_trim=rollout.max_trim_tokens)
            strangers = [g.id for g in made.generations if g.output_ids]
            see.equal(strangers, [], "a sample holds a reply that came in behind the close", f"sample {number}")


@rule(
    "session/node-cap",
    level="meaning",
    needs={"session.v2", "node_cap"},
    reason="A session that replays its history wrongly grows without end, and the engine works for nothing.",
    source="miles session v2 MAX_NODES, seen to refuse behind the engine's work; design 6.8",
)
def node_cap(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """A request beyond the most that a session may hold is refused before the engine is asked; all else stays."""
    cap = case.scenario.max_nodes
    if case.session != "v2" or cap is None or len(rollout.turns) <= cap or is_harmed(case, rollout):
        return
    statuses = [turn.status for turn in rollout.turns]
    see.equal(statuses[:cap], [200] * cap, "requests within the cap")
    see.that(400 <= statuses[cap] < 500, "the request beyond the cap", expected="a refusal", found=statuses[cap])
    asked = len(case.ledger.generations)
    see.that(asked <= cap * len(case.rollouts), "the engine was asked beyond the cap", expected=cap, found=asked)
    see.that(bool(rollout.samples), "what the session held is lost", expected="samples", found="none")


@rule(
    "session/collect-survived",
    level="meaning",
    reason="One connection that breaks at the end of a rollout of hours must not end the run of all of them.",
    source="miles PR #2544 (only a timeout was looked for), PR #485 (a collect that deletes cannot be made again)",
)
def collect_survived(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """Where the connection breaks while samples are collected, and no more befalls it, the rollout ends in a sample."""
    broken = any(each.kind in COLLECT_BREAKS for each, _ in fired(case, rollout))
    alone = all(each.kind in COLLECT_BREAKS for each, _ in harmed(case, rollout))
    if broken and alone and not must_be_rejected(case, rollout.input):
        error = rollout.view.error
        found = f"{error.type}: {error.message}" if error else f"{len(rollout.samples)} samples"
        see.that(error is None and bool(rollout.samples), "a broken collect", expected="a sample", found=found)


@rule(
    "session/order-free",
    level="meaning",
    reason="Samples that depend on which agent came first cannot be compared, nor a failure be seen again.",
    source="design 4 and 5: same seed, same bytes, whatever the order of arrival",
)
def order_free(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """A second play gives the same samples, all agents at once or one after the other; but for what the cache holds."""
    if case.second is None:
        return
    other = case.second.rollouts[rollout.number]
    fields = [name for name in _SAME if name != "prefix_cache_info" or case.scenario.replayed == "alike"]
    if see.equal(len(other.samples), len(rollout.samples), "number of samples of the second play"):
        for number, (one, two) in enumerate(zip(rollout.samples, other.samples, strict=True)):
            for field in fields:
                same = getattr(one, field) == getattr(two, field)
                see.that(same, f"{field} differs in the second play", detail=f"sample {number}")


@rule(
    "session/siblings-in-parallel",
    level="meaning",
    needs={"session.v2"},
    reason="A reply that was sent but not recorded is lost to training, though the agent went on from it.",
    source="design 6.4: twins that ran at the same time stay; miles v1 answers 200 and drops parallel calls",
)
def siblings_in_parallel(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """Subagents that run at the same time are all answered, and each reply is in a sample.

    What goes on from a cut reply is refused, at the same time as another or not.
    """
    parallel = set(step_keys(case.scenario.plan.steps, "parallel"))
    if rollout.view.error is not None or not parallel or forgone(case, rollout):
        return
    kept = {node.step: node.generation for node in rollout.lineage.kept}
    present = {g.id for _, _, found in trained(rollout) for g in found.generations}
    for turn in (turn for turn in rollout.turns if turn.step in parallel):
        if turn.status == 409 and goes_on_from_a_cut(rollout, turn):
            continue
        if turn.status != 200 and excused(case, rollout, turn):
            continue
        see.equal(turn.status, 200, "a parallel request was not answered", f"step {turn.step}")
        generation = kept.get(turn.step)
        if generation is not None and fits(generation, case.scenario.max_seq_len):
            see.that(generation.id in present, "a parallel reply is in no sample", detail=f"step {turn.step}")


@rule(
    "session/isolation",
    level="alignment",
    reason="One rollout is rewarded for what another one said.",
    source="design 6.7: a rollout's failure, and its data, are its own",
)
def isolation(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """No sample holds a generation of another rollout."""
    if len(case.rollouts) < 2 or not sample.tokens:
        return
    own = rollout.alignment(sample)
    strangers = [] if own.end == len(sample.tokens) else _strangers(case, rollout, sample)
    see.equal(strangers, [], "generations of other rollouts in this sample")


def _strangers(case: Case, rollout: RolloutCase, sample: SampleView) -> list[str]:
    """`rollout 2: id` for each generation of another rollout that this sample is made of."""
    found = []
    for other in case.rollouts:
        if other is not rollout:
            made = align(sample.tokens, sample.response_length, other.generations, max_trim=other.max_trim_tokens)
            found += [f"rollout {other.number}: {g.id}" for g in made.generations if g.output_ids]
    return found


@rule(
    "session/v1-v2-parity",
    level="meaning",
    needs={"session.v1", "session.v2"},
    reason="A linear conversation means the same under both servers; a difference is a fault of one of them.",
    source="design 7; both servers record the same engine replies",
)
def v1_v2_parity(cases: Mapping[str, Case], see: Recorder) -> None:
    """What both session versions serve gives the same trained ids, logprobs, counters and status."""
    if not {"v1", "v2"} <= cases.keys():
        return
    linear, tree = cases["v1"], cases["v2"]
    for one, other in zip(linear.rollouts, tree.rollouts, strict=True):
        if must_be_rejected(tree, other.input) or is_harmed(linear, one) or is_harmed(tree, other):
            continue
        differing = may_differ(linear, one) | may_differ(tree, other)
        where = f"rollout {one.number}"
        if see.equal(len(other.samples), len(one.samples), "number of samples", where):
            for number, (first, second) in enumerate(zip(one.samples, other.samples, strict=True)):
                for field in (name for name in _SAME if name not in differing):
                    left, right = getattr(first, field), getattr(second, field)
                    see.that(
                        left == right,
                        f"{field} differs between v1 and v2",
                        expected=left,
                        found=right,
                        detail=f"{where}, sample {number}",
                    )
