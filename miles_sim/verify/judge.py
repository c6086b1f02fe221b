"""Judging: rules over cases, lowest level first, each verdict with the number of witnesses behind it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from miles_sim.verify.allowance import allowance
from miles_sim.verify.report import Verdict
from miles_sim.verify.rule import Case, Place, Recorder, Rule, RuleError, Scope, Violation

Call = tuple[Place, tuple[Any, ...]]
"""Where a check looks, and what it is given beside its recorder."""


@dataclass(frozen=True)
class Judgement:
    """What one rule says of one case."""

    rule: Rule
    case: str
    verdict: Verdict
    witnesses: int = 0
    violations: tuple[Violation, ...] = ()
    reason: str = ""
    """Why it is not applicable or blocked."""


class _Blocked:
    """Samples and rollouts that failed: out of sight for higher levels, and for rules that stand `after`."""

    def __init__(self) -> None:
        self._failed: list[tuple[int, Place, str]] = []

    def add(self, rule: Rule, violations: Sequence[Violation]) -> None:
        places = [violation.place for violation in violations]
        if rule.scope != "sample":  # the sample that such a place names is where it shows best, not all that it spoils
            places = [Place(place.rollout) for place in places]
        self._failed += [(int(rule.level), place, rule.id) for place in places]

    def by(self, rule: Rule, rollout: int | None = None, sample: int | None = None) -> str | None:
        """The rule whose violation hides this place, if any."""
        if not self._failed:
            return None
        for level, place, id in self._failed:
            if level >= rule.level and id not in rule.after:
                continue
            same_rollout = None in (rollout, place.rollout) or rollout == place.rollout
            same_sample = None in (sample, place.sample) or sample == place.sample
            if same_rollout and same_sample:
                return id
        return None


def judge(case: Case, rules: Sequence[Rule]) -> list[Judgement]:
    """One judgement a rule of scope case, rollout or sample, in the order of `rules`."""
    blocked = _Blocked()
    judgements: dict[str, Judgement] = {}
    calls = {scope: list(_calls(case, scope)) for scope in ("case", "rollout", "sample")}
    allowed: dict[int | None, str | None] = {}
    for rule in _in_order(rules):
        if rule.scope != "scenario":
            judgements[rule.id] = _judge_one(case, rule, calls[rule.scope], blocked, allowed)
            blocked.add(rule, judgements[rule.id].violations)
    return [judgements[rule.id] for rule in rules if rule.id in judgements]


def _in_order(rules: Sequence[Rule]) -> list[Rule]:
    """By level; within a level each rule behind those it stands `after`."""
    present = {rule.id: rule for rule in rules}
    ordered: dict[str, Rule] = {}

    def place(rule: Rule, waiting: tuple[str, ...]) -> None:
        if rule.id in waiting:
            raise RuleError(f"rule {rule.id!r}: stands after itself ({' after '.join((*waiting, rule.id))})")
        for id in sorted(rule.after & present.keys()):
            place(present[id], (*waiting, rule.id))
        ordered.setdefault(rule.id, rule)

    for rule in sorted(rules, key=lambda rule: rule.level):
        place(rule, ())
    return list(ordered.values())


def _judge_one(
    case: Case, rule: Rule, calls: Sequence[Call], blocked: _Blocked, allowances: dict[int | None, str | None]
) -> Judgement:
    """`allowances`: of rules on counters, by rollout, as far as they have been asked for."""
    missing = sorted(rule.needs - case.capabilities)
    if missing:
        return Judgement(rule, case.name, Verdict.NOT_APPLICABLE, reason=f"needs {', '.join(missing)}")
    see = Recorder(rule.id)
    blocker: str | None = None
    allowed = ""
    counts = rule.area == "counters"
    for place, arguments in calls:
        by = blocked.by(rule, place.rollout, place.sample)
        if by is not None:
            blocker = by
            continue
        if counts:
            if place.rollout not in allowances:
                allowances[place.rollout] = allowance(rule, case, place.rollout)
            if (why := allowances[place.rollout]) is not None:
                allowed = why
                continue
        see.place = place
        _run(rule, see, *arguments)
    return _verdict(rule, case.name, see.witnesses, see.violations, blocker, allowed)


def judge_scenario(cases: Mapping[str, Case], rules: Sequence[Rule], failed: frozenset[str]) -> list[Judgement]:
    """One judgement a rule of scope scenario, over the cases of one scenario by session version.

    `failed`: names of cases with a violation below the level of meaning; they block.
    """
    first = next(iter(cases.values()))
    name = f"{first.scenario.name}/{'+'.join(cases)}"
    judgements = []
    for rule in (rule for rule in rules if rule.scope == "scenario"):
        missing = sorted(rule.needs - first.capabilities)
        if missing:
            judgements.append(Judgement(rule, name, Verdict.NOT_APPLICABLE, reason=f"needs {', '.join(missing)}"))
            continue
        hidden = sorted(failed & {case.name for case in cases.values()})
        see = Recorder(rule.id)
        allowed = next((why for case in cases.values() if (why := allowance(rule, case)) is not None), "")
        if not hidden and not allowed:
            _run(rule, see, cases)
        blocker = hidden[0] if hidden else None
        judgements.append(_verdict(rule, name, see.witnesses, see.violations, blocker, allowed))
    return judgements


def _calls(case: Case, scope: Scope) -> Iterator[Call]:
    """What a check of that scope is asked of, one after the other."""
    if scope == "case":
        yield Place(), (case,)
        return
    for rollout in case.rollouts:
        if scope == "rollout":
            yield Place(rollout.number), (case, rollout)
            continue
        for number, sample in enumerate(rollout.samples):
            yield Place(rollout.number, number), (case, rollout, sample)


def _run(rule: Rule, see: Recorder, *arguments: Any) -> None:
    """A check that raises has met data that it cannot read: a violation, never the end of the run."""
    try:
        rule.check(*arguments, see)
    except Exception as error:
        see.that(False, f"the check could not read this: {type(error).__name__}: {error}")


def _verdict(
    rule: Rule, case: str, witnesses: int, violations: Sequence[Violation], blocker: str | None, allowed: str
) -> Judgement:
    if violations:
        return Judgement(rule, case, Verdict.VIOLATION, witnesses, tuple(violations))
    if witnesses:
        return Judgement(rule, case, Verdict.PASS, witnesses)
    if blocker is not None:
        return Judgement(rule, case, Verdict.BLOCKED, reason=f"blocked by {blocker}")
    return Judgement(rule, case, Verdict.NOT_APPLICABLE, reason=allowed or "nothing to look at in this scenario")
