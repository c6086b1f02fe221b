"""Status: how a sample ended."""

from miles_sim.targets.observation import SampleView
from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.rule import RolloutCase

from ._struck import is_harmed
from ._truth import FINAL, is_cut, trained

BROKEN_OFF = frozenset({"truncated", "aborted", "failed"})
"""Statuses that a rollout may end in which a fault broke off."""


@rule(
    "status/mapped",
    level="meaning",
    reason="Filters, rewards and the truncated ratio go by status.",
    source="miles: length is truncated, abort is aborted, stop and tool_calls are completed; design 6.5",
)
def mapped(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """A sample's status says how its last generation ended."""
    found = rollout.alignment(sample)
    if not found.spans or (case.scenario.max_seq_len is not None and is_cut(rollout, found)):
        return
    reason = str(found.spans[-1].generation.finish_reason.get("type"))
    if sample.status in BROKEN_OFF and is_harmed(case, rollout):
        return
    see.equal(sample.status, FINAL.get(reason, "an error naming it"), f"status after finish reason {reason!r}")


@rule(
    "status/never-pending",
    level="meaning",
    reason="A pending sample is taken for one that is still to be generated, or trained as it is.",
    source="design 6.5",
)
def never_pending(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """What generate returns has a final status."""
    final = ("completed", "truncated", "aborted", "failed")
    see.that(sample.status in final, "not a final status", expected=" | ".join(final), found=sample.status)


@rule(
    "status/truncated-not-extended",
    level="meaning",
    reason="A conversation that goes on from half an answer trains on a history that no agent meant.",
    source="miles session v2: 409 on extending a node that ended with length; design 6.5",
)
def truncated_not_extended(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """A generation that ended with `length` is the end of its path: to go on from it is refused."""
    asked = {turn.parent for turn in rollout.turns}
    for node in rollout.lineage.nodes:
        if node.generation.finish_reason.get("type") == "length" and node.step in asked:
            see.equal(
                [child.step for child in rollout.lineage.children[node.step]],
                [],
                "steps that went on from a truncated generation",
                f"step {node.step}",
            )
    for number, _, found in trained(rollout):
        middle = [g.id for g in found.generations[:-1] if g.finish_reason.get("type") == "length"]
        if len(found.spans) > 1:
            see.equal(middle, [], "a truncated generation stands in the middle of a sample", f"sample {number}")
