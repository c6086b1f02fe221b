"""Judging: levels, blocking, vacuity, witnesses; on hand-made rules and cases."""

import pytest

from miles_sim.ledger import Ledger
from miles_sim.scenarios.model import Scenario
from miles_sim.targets.observation import Observation, RolloutView, SampleView
from miles_sim.verify import Case, Recorder, Rule, rule
from miles_sim.verify.judge import judge, judge_scenario
from miles_sim.verify.report import Verdict
from miles_sim.verify.rule import RolloutCase, RuleError


def case_of(*samples_per_rollout: int, session: str = "v2") -> Case:
    rollouts = [
        RolloutView(
            input=SampleView(),
            input_after=SampleView(),
            agent_ran=True,
            samples=tuple(SampleView(index=number) for number in range(count)),
        )
        for count in samples_per_rollout
    ]
    scenario = Scenario.model_validate(
        {"name": "made", "title": "made by hand", "plan": {}, "rollouts": [{}] * len(rollouts)}
    )
    observation = Observation(session=session, rollouts=tuple(rollouts))  # type: ignore[arg-type]
    return Case(scenario, session, Ledger(), observation, frozenset({"there"}))  # type: ignore[arg-type]


def sample_rule(
    id: str, level: str, *, broken_at: tuple[int, int] | None = None, needs: frozenset[str] = frozenset()
) -> Rule:
    @rule(id, level=level, reason="r", source="s", needs=needs)  # type: ignore[arg-type]
    def check(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
        """A rule of one sample."""
        see.that((rollout.number, sample.index) != broken_at, "broken")

    return check


def test_each_scope_is_called_once_for_each_of_its_places() -> None:
    seen: list[str] = []

    @rule("a/case", level="meaning", reason="r", source="s")
    def once(case: Case, see: Recorder) -> None:
        """Once a case."""
        seen.append("case")
        see.that(True, "")

    @rule("a/rollout", level="meaning", reason="r", source="s")
    def per_rollout(case: Case, rollout: RolloutCase, see: Recorder) -> None:
        """Once a rollout."""
        seen.append(f"rollout {rollout.number}")
        see.that(True, "")

    judgements = judge(case_of(2, 1), [once, per_rollout, sample_rule("a/sample", "meaning")])
    assert seen == ["case", "rollout 0", "rollout 1"]
    assert [j.witnesses for j in judgements] == [1, 2, 3]
    assert {j.verdict for j in judgements} == {Verdict.PASS}


def test_a_failure_blocks_higher_levels_of_the_same_sample_only() -> None:
    low = sample_rule("a/low", "structure", broken_at=(0, 1))
    high = sample_rule("a/high", "meaning", broken_at=(0, 1))
    by_id = {j.rule.id: j for j in judge(case_of(2, 1), [high, low])}
    assert by_id["a/low"].verdict is Verdict.VIOLATION
    assert by_id["a/high"].verdict is Verdict.PASS, "the broken sample is out of sight"
    assert by_id["a/high"].witnesses == 2


def test_a_rule_with_nothing_left_to_see_is_blocked_and_says_by_what() -> None:
    low = sample_rule("a/low", "schema", broken_at=(0, 0))
    (_, high) = judge(case_of(1), [low, sample_rule("a/high", "meaning")])
    assert (high.verdict, high.reason) == (Verdict.BLOCKED, "blocked by a/low")


def test_equal_levels_do_not_block_each_other() -> None:
    first = sample_rule("a/first", "meaning", broken_at=(0, 0))
    (_, second) = judge(case_of(1), [first, sample_rule("a/second", "meaning")])
    assert second.verdict is Verdict.PASS


def test_a_missing_capability_is_not_applicable_and_named() -> None:
    (judgement,) = judge(case_of(1), [sample_rule("a/x", "meaning", needs=frozenset({"there", "not-there"}))])
    assert judgement.verdict is Verdict.NOT_APPLICABLE
    assert judgement.reason == "needs not-there"


def test_a_check_that_raises_is_a_violation_not_the_end() -> None:
    @rule("a/raises", level="meaning", reason="r", source="s")
    def raises(case: Case, see: Recorder) -> None:
        """Raises."""
        raise KeyError("tokens")

    (judgement,) = judge(case_of(1), [raises])
    assert judgement.verdict is Verdict.VIOLATION
    assert "KeyError: 'tokens'" in judgement.violations[0].message


def test_a_scenario_rule_sees_all_session_versions_and_is_blocked_by_a_failed_one() -> None:
    @rule("a/parity", level="meaning", reason="r", source="s")
    def parity(cases: dict[str, Case], see: Recorder) -> None:
        """Sees every version."""
        see.equal(sorted(cases), ["v1", "v2"], "versions")

    cases = {"v1": case_of(1, session="v1"), "v2": case_of(1)}
    (judgement,) = judge_scenario(cases, [parity], frozenset())
    assert (judgement.case, judgement.verdict) == ("made/v1+v2", Verdict.PASS)
    (judgement,) = judge_scenario(cases, [parity], frozenset({"made/v1"}))
    assert (judgement.verdict, judgement.reason) == (Verdict.BLOCKED, "blocked by made/v1")


def test_a_rule_that_stands_after_another_is_hidden_by_its_failure_at_the_same_place() -> None:
    @rule("a/first", level="meaning", reason="r", source="s", after={"a/root"})
    def first(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
        """Stands after the root."""
        see.that(False, "an echo")

    root = sample_rule("a/root", "meaning", broken_at=(0, 0))
    by_id = {j.rule.id: j for j in judge(case_of(2), [first, root])}
    assert [str(v.place) for v in by_id["a/first"].violations] == ["rollout 0, sample 1"]


def test_rules_that_stand_after_each_other_are_refused() -> None:
    def standing(id: str, after: str) -> Rule:
        @rule(id, level="meaning", reason="r", source="s", after={after})
        def check(case: Case, see: Recorder) -> None:
            """Waits."""

        return check

    with pytest.raises(RuleError, match="'a/x': stands after itself"):
        judge(case_of(1), [standing("a/x", "a/y"), standing("a/y", "a/x")])
