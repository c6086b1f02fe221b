"""The report: vacuity, baselines strict both ways, reproduction lines; on hand-made judgements."""

from dataclasses import replace
from typing import cast

import pytest

from miles_sim.scenarios import library
from miles_sim.targets.base import TargetInfo
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.verify import Case, Recorder, Rule, rule
from miles_sim.verify.baseline import Baseline, Known
from miles_sim.verify.judge import Judgement
from miles_sim.verify.report import Report, Verdict
from miles_sim.verify.rule import Place, Violation
from miles_sim.verify.run import SelectionError, _report, verify

INFO = cast(
    TargetInfo,
    {
        "name": "t",
        "version": "1",
        "python": "3.11",
        "optimize": 0,
        "capabilities": [],
        "absent": {},
        "stand_ins": [],
    },
)


@rule("own/rule", level="meaning", reason="r", source="s")
def own_rule(case: Case, see: Recorder) -> None:
    """A statement."""


def judgement(case: str, verdict: Verdict, reason: str = "") -> Judgement:
    broken = (Violation("own/rule", Place(0, 1, "token 3"), "wrong", "1", "2"),)
    violations = broken if verdict is Verdict.VIOLATION else ()
    witnesses = 2 if verdict in (Verdict.PASS, Verdict.VIOLATION) else 0
    return Judgement(own_rule, case, verdict, witnesses, violations, reason)


def report(*judgements: Judgement, complete: bool = True, baseline: Baseline | None = None) -> Report:
    rules: list[Rule] = [own_rule]
    return _report(INFO, 0, rules, judgements, complete, baseline, ("miles-sim", "verify"), {})


def known(*cases: str) -> Baseline:
    entry = Known(contract="own/rule", scenarios=cases, reason="a known bug", link="PR 1")
    return Baseline(target="t", version="1", known=(entry,))


def test_a_violation_fails_and_carries_one_line_that_shows_it_again() -> None:
    made = report(judgement("a/v2", Verdict.VIOLATION))
    assert not made.holds
    (result,) = made.results
    assert result.repro == "miles-sim verify --scenario a/v2 --contract own/rule"
    assert (result.where, result.message) == ("rollout 0, sample 1, token 3", "wrong")


def test_a_rule_without_any_witness_in_a_whole_run_is_vacuous_and_fails() -> None:
    nothing = judgement("a/v2", Verdict.NOT_APPLICABLE, "nothing to look at in this scenario")
    made = report(nothing)
    assert (made.contracts[0].verdict, made.summary.vacuous, made.holds) == (Verdict.VACUOUS, 1, False)
    assert report(nothing, complete=False).holds, "a selection proves nothing about the whole"


def test_a_rule_that_only_scenarios_out_of_reach_could_witness_is_not_applicable() -> None:
    made = report(judgement("a/v2", Verdict.NOT_APPLICABLE, "needs session.v2: not there"))
    assert (made.contracts[0].verdict, made.holds) == (Verdict.NOT_APPLICABLE, True)


def test_a_known_violation_holds_and_gives_the_reason() -> None:
    made = report(judgement("a/v2", Verdict.VIOLATION), baseline=known("a/v2"))
    assert made.holds
    assert (made.results[0].verdict, made.results[0].message) == (Verdict.KNOWN, "a known bug")


def test_a_vanished_violation_fails() -> None:
    made = report(judgement("a/v2", Verdict.PASS), baseline=known("a/v2"))
    assert (made.results[0].verdict, made.holds) == (Verdict.UNEXPECTED_PASS, False)


def test_a_new_violation_beside_a_known_one_fails() -> None:
    made = report(judgement("a/v2", Verdict.VIOLATION), judgement("b/v2", Verdict.VIOLATION), baseline=known("a/v2"))
    assert (made.summary.known, made.summary.violation, made.holds) == (1, 1, False)


@pytest.mark.parametrize(("complete", "reported"), [(True, ("own/rule on gone/v2",)), (False, ())])
def test_a_baseline_entry_that_matches_nothing_is_reported_by_a_whole_run(
    complete: bool, reported: tuple[str, ...]
) -> None:
    made = report(judgement("a/v2", Verdict.PASS), complete=complete, baseline=known("gone/v2"))
    assert made.unmatched_baseline == reported
    assert made.holds is not complete


def test_a_rule_over_sessions_that_the_target_lacks_is_not_applicable() -> None:
    both = replace(own_rule, needs=frozenset({"session.v1", "session.v2"}))
    info = cast(TargetInfo, {**INFO, "absent": {"session.v2": "it is linear"}})
    made = _report(info, 0, [both], [], True, None, (), {})
    assert (made.contracts[0].verdict, made.contracts[0].reason) == (
        Verdict.NOT_APPLICABLE,
        "needs session.v2: it is linear",
    )
    assert made.holds


def test_what_varies_may_hold_or_fail_and_its_entry_is_answered_either_way() -> None:
    (entry,) = known("a/v2").known
    baseline = Baseline(target="t", version="1", known=(entry.model_copy(update={"varies": True}),))
    held = report(judgement("a/v2", Verdict.PASS), baseline=baseline)
    assert (held.results[0].verdict, held.unmatched_baseline, held.holds) == (Verdict.PASS, (), True)
    failed = report(judgement("a/v2", Verdict.VIOLATION), baseline=baseline)
    assert (failed.results[0].verdict, failed.holds) == (Verdict.KNOWN, True)
    other = report(judgement("b/v2", Verdict.PASS), baseline=baseline)
    assert other.unmatched_baseline == ("own/rule on a/v2",)


async def test_two_cases_of_one_name_are_refused() -> None:
    linear = library.load("linear")
    with pytest.raises(SelectionError, match=r"^cases: 'linear/v2' is there 2 times$"):
        await verify([(linear, "v2"), (linear, "v1"), (linear, "v2")], ReferenceTarget(), [own_rule])
