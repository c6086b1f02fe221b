"""Faults: whatever goes wrong, nothing false comes out, and what must come of it does."""

from miles_sim.faults.kind import Kind
from miles_sim.ledger import Fired
from miles_sim.targets.observation import SampleView
from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.rule import RolloutCase

from ._struck import EXTRA, answered, attempts, excused, failures, fired, is_harmed, unanswered_end
from ._truth import fits, goes_on_from_a_cut, mask, must_be_rejected, trained

_MARKS = frozenset({"agent_error", "engine_error", "halted", "dropped"})
"""Keys of a sample's metadata that tell what is missing in it."""


@rule(
    "faults/nothing-false",
    level="alignment",
    reason="A fault costs a rollout; a sample that is not what the engine said costs the model.",
    source="design 8: whatever happened, each sample that came out is true to the ledger",
)
def nothing_false(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """Where faults fired, a sample still holds only what the engine got and said for its rollout, masked as it was."""
    if not case.ledger.fired or not sample.tokens:
        return
    found = rollout.alignment(sample)
    whole = found.end == len(sample.tokens) or unanswered_end(case, rollout, sample)
    if not see.that(whole, "ids that come from no generation", found=len(sample.tokens)):
        return
    trainable, stated = mask(sample), sample.rollout_log_probs or ()
    unsaid = {at - found.response_start for at in found.unsaid()}
    wrong = [at for at in unsaid if trainable[at] or (stated and stated[at] != 0.0)]
    see.equal(wrong, [], "ids that nobody sampled are trainable or have a logprob")
    for span in found.spans:
        start = span.start - found.response_start
        if start >= 0 and stated:
            said = span.generation.logprobs[: span.matched]
            see.equal(stated[start : start + span.matched], said, "logprobs of a reply are not the engine's")


@rule(
    "faults/verdict-as-declared",
    level="meaning",
    reason="Who knows what a fault does to a rollout can plan for it; else each outage is a riddle of its own.",
    source="design 8: tolerate, reject, degrade; each kind says which",
)
def verdict_as_declared(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """What struck a rollout is tolerated, rejected by an error, or degrades it and is told, as its kind declares."""
    if must_be_rejected(case, rollout.input):
        return
    for each, kind in fired(case, rollout):
        verdict = kind.verdict_under(case.session)
        where = f"{each.kind} at step {each.step}, attempt {each.attempt}"
        if verdict == "tolerate":
            _tolerated(case, rollout, each, see, where)
        elif verdict == "reject":
            _rejected(case, rollout, each, kind, see, where)
        elif rollout.view.error is None and not is_told(rollout):
            _whole(case, rollout, see, where)


def _tolerated(case: Case, rollout: RolloutCase, each: Fired, see: Recorder, where: str) -> None:
    if is_harmed(case, rollout):
        return  # by another one, and what that one spoils is not this one's fault
    error = rollout.view.error
    told = f"{error.type}: {error.message}" if error else ""
    see.that(error is None, "a fault that must be tolerated ended the rollout", expected="samples", found=told)
    see.equal(failures(rollout, each.step, extra=False), 0, "requests failed by a fault that must be tolerated", where)
    _whole(case, rollout, see, where)


def _rejected(case: Case, rollout: RolloutCase, each: Fired, kind: Kind, see: Recorder, where: str) -> None:
    """Its request failed, or its rollout did; and what nobody was answered with is in no sample.

    Where it was delivered more than once, or asked again when all was over, what was struck may be a copy whose answer
    nobody waited for: then nobody was answered with what it spoiled, and nobody need notice.
    """
    refused = failures(rollout, each.step) > 0 or rollout.view.error is not None or is_told(rollout)
    told = {turn.response_id for turn in rollout.turns}
    if not refused and _is_copy(case, rollout, each, kind):
        see.equal([name for name in each.lost if name in told], [], "an agent was answered with what must be rejected")
    else:
        see.that(refused, "a fault that must be rejected was not", expected="an error", found="none", detail=where)
    if kind.edge == "engine":
        present = {g.id for _, _, found in trained(rollout) for g in found.generations}
        kept = [name for name in each.lost if name in present and (name not in told or rollout.view.error is None)]
        see.equal(kept, [], "a sample holds a generation that must be rejected", where)


def _is_copy(case: Case, rollout: RolloutCase, each: Fired, kind: Kind) -> bool:
    """What it struck was asked when all was over, and so is no turn of the agent's; or it is one of two requests to the
    engine, as the one between agent and session server was delivered twice."""
    copied_on = {by.edge for other, by in fired(case, rollout) if by.copies > 1 and other.step == each.step}
    late = "agent" in copied_on and each.attempt >= attempts(rollout, each.step)
    return late or ("session" in copied_on and kind.edge == "engine")


def is_told(rollout: RolloutCase) -> bool:
    """Its samples say that something is missing."""
    return any(
        sample.status in ("aborted", "truncated", "failed") or sample.remove_sample or _MARKS & set(sample.metadata)
        for sample in rollout.samples
    )


def _whole(case: Case, rollout: RolloutCase, see: Recorder, where: str) -> None:
    """Each reply that the agent was given and went on from is in a sample. A linear session holds one line of them."""
    present = {g.id for _, _, found in trained(rollout) for g in found.generations}
    missing = [
        node.step
        for node in rollout.lineage.kept
        if node.told
        and not (case.session == "v1" and EXTRA in node.step)
        and node.generation.id not in present
        and fits(node.generation, case.scenario.max_seq_len)
    ]
    see.equal(missing, [], "replies that the agent was given are in no sample", where)


@rule(
    "faults/blast-radius",
    level="meaning",
    reason="In a batch of hundreds something is always going wrong; it must not cost the others.",
    source="design 6.7: one rollout's failure is its own; design 8",
)
def blast_radius(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """A rollout that no fault struck is answered and whole, whatever befalls the others."""
    if not case.ledger.fired or any(True for _ in fired(case, rollout)) or must_be_rejected(case, rollout.input):
        return
    error = rollout.view.error
    see.that(
        error is None and bool(rollout.samples),
        "a rollout that no fault struck has no sample",
        expected="samples",
        found=f"{error.type}: {error.message}" if error else "none",
    )
    _whole(case, rollout, see, "no fault")


@rule(
    "faults/all-finish",
    level="meaning",
    reason="What still waits for a fault that is over waits for ever.",
    source="design 8: after faults stop, all work must finish",
)
def all_finish(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """An agent that asks again is answered as soon as no fault strikes its request; not where it goes on from a reply
    that was cut, which is refused for good."""
    if case.scenario.plan.retries == 0 or not any(True for _ in fired(case, rollout)):
        return
    for turn in rollout.turns:
        if goes_on_from_a_cut(rollout, turn):
            continue
        see.that(
            answered(turn) or excused(case, rollout, turn),
            "more attempts failed than faults struck",
            expected="an answer",
            found=f"statuses {[*turn.failed, turn.status]}",
            detail=f"step {rollout.question(turn)}",
        )


@rule(
    "faults/fired",
    level="meaning",
    reason="A fault that never strikes proves nothing, and its scenario looks as if it did.",
    source="design 8: what was planned but could not fire is counted",
)
def all_fired(case: Case, see: Recorder) -> None:
    """Each fault of the plan strikes at least once, unless a draw or a fault before it decides otherwise."""
    struck = {each.fault for each in case.ledger.fired}
    for number, fault in enumerate(case.scenario.faults):
        reasons = sorted({each.reason or "" for each in case.ledger.missed if each.fault == number})
        over = any(is_harmed(case, rollout) for rollout in case.rollouts)
        if number in struck or (fault.when.probability is None and (reasons or not over)):
            see.that(
                number in struck,
                "a fault could not strike",
                expected=f"{fault.kind} strikes",
                found=f"it could not: {'; '.join(reasons)}" if reasons else "its place was never come to",
                detail=f"faults[{number}]",
            )
