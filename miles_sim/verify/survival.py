"""The contract that a play ends at all: what it says where one did not."""

from collections.abc import Sequence

from miles_sim.targets.base import PlayError
from miles_sim.targets.plain import scrubbed
from miles_sim.verify.judge import Judgement
from miles_sim.verify.report import Verdict
from miles_sim.verify.rule import Case, Place, Recorder, Rule, Violation, rule


@rule(
    "session/play-ends",
    level="schema",
    reason="A process that dies or hangs takes the rollouts of everyone else with it.",
    source="design 6.7: one rollout's failure is its own; PR 2983 (an abort that waits for ever)",
)
def play_ends(case: Case, see: Recorder) -> None:
    """The target plays a scenario to its end: it neither crashes nor hangs."""
    see.that(True, "the play ended")


def broken_off(case: str, error: PlayError, rules: Sequence[Rule]) -> list[Judgement]:
    """The judgements of a play without an end; it is told even where `play_ends` is not among `rules`."""
    found = scrubbed({"message": error.brief})["message"]
    expected = "samples or an error of each rollout"
    violation = Violation(play_ends.id, Place(), "the play did not end", expected, found)
    blocked = [
        Judgement(rule, case, Verdict.BLOCKED, reason=f"blocked by {play_ends.id}")
        for rule in rules
        if rule.scope != "scenario" and rule.id != play_ends.id
    ]
    return [*blocked, Judgement(play_ends, case, Verdict.VIOLATION, 1, (violation,))]


def with_play_ends(rules: Sequence[Rule], told: Sequence[Judgement]) -> Sequence[Rule]:
    """`rules`, and `play_ends` with them where a judgement is its."""
    ids = {rule.id for rule in rules}
    return [*rules, play_ends] if play_ends.id not in ids and any(j.rule is play_ends for j in told) else rules
