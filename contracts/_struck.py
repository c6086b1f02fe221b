"""What the faults that fired mean for a rollout: for the rules on faults, and for those that must allow for them."""

from collections.abc import Iterator

from miles_sim.faults.catalogue import kind_named
from miles_sim.faults.kind import Kind
from miles_sim.ledger import Fired, Turn
from miles_sim.targets.observation import SampleView
from miles_sim.verify.rule import Case, RolloutCase

EXTRA = "~"
"""Before the number of a further request that a fault made at a step."""


def fired(case: Case, rollout: RolloutCase) -> Iterator[tuple[Fired, Kind]]:
    """What struck this rollout, in the order of places."""
    for each in case.ledger.fired:
        if each.rollout == rollout.number:
            yield each, kind_named(each.kind)


def harmed(case: Case, rollout: RolloutCase) -> Iterator[tuple[Fired, Kind]]:
    """As `fired`, less what must be tolerated."""
    for each, kind in fired(case, rollout):
        if kind.verdict_under(case.session) != "tolerate":
            yield each, kind


def is_harmed(case: Case, rollout: RolloutCase) -> bool:
    return any(True for _ in harmed(case, rollout))


def forgone(case: Case, rollout: RolloutCase) -> bool:
    """All that this rollout made may be lost, which is then said: its session went, or its samples could not be had."""
    return any(kind.edge == "driver" or kind.takes_all for _, kind in harmed(case, rollout))


def unanswered_end(case: Case, rollout: RolloutCase, sample: SampleView) -> bool:
    """A direct sample that a fault broke off may end with what was asked last, of which the engine never heard."""
    return case.session == "direct" and sample.status == "aborted" and is_harmed(case, rollout)


def answered(turn: Turn) -> bool:
    """The agent was given a reply that it could read."""
    return turn.status == 200 and turn.response_id is not None


def attempts(rollout: RolloutCase, step: str) -> int:
    """How often the agent asked a question and waited for the answer: what it asks when all is over is no turn."""
    return sum(len(turn.failed) + 1 for turn in rollout.turns if rollout.question(turn) == step)


def failures(rollout: RolloutCase, step: str, *, extra: bool = True) -> int:
    """Attempts at a question that the agent got no reply to. `extra`: those of a fault's own requests too."""
    asked = [turn for turn in rollout.turns if rollout.question(turn) == step and (extra or EXTRA not in turn.step)]
    return sum(len(turn.failed) + (not answered(turn)) for turn in asked)


def excused(case: Case, rollout: RolloutCase, turn: Turn) -> bool:
    """No more attempts of this turn's question failed than faults allow; a fault's own requests may all."""
    if EXTRA in turn.step:
        return True
    step = rollout.question(turn)
    strikes = sum(each.step in (step, turn.step) for each, _ in harmed(case, rollout))
    return failures(rollout, step, extra=False) <= strikes or any(_whole(kind) for _, kind in harmed(case, rollout))


def may_differ(case: Case, rollout: RolloutCase | None = None) -> frozenset[str]:
    """Fields of samples and metrics that what fired may change, in one rollout or in all."""
    kinds = (
        (each.rollout, kind_named(each.kind))
        for each in case.ledger.fired
        if kind_named(each.kind).radius == "engine" or rollout is None or each.rollout == rollout.number
    )
    return frozenset().union(*(kind.counters for _, kind in kinds))


def _whole(kind: Kind) -> bool:
    """It concerns a rollout from then on, not one request."""
    return kind.edge == "agent" or (kind.edge == "session" and kind.layer == "session") or kind.takes_all
