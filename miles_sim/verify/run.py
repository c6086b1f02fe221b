"""Running: scenarios × contracts on one target, into one report."""

import asyncio
import itertools
import logging
import shlex
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Protocol, TypeVar

from miles_sim.ledger import Fired, Missed
from miles_sim.scenarios.model import Scenario, SessionVersion
from miles_sim.targets.base import PlayError, Target, TargetInfo
from miles_sim.transport import LocalNetwork
from miles_sim.verify.baseline import Baseline
from miles_sim.verify.judge import Judgement, judge, judge_scenario
from miles_sim.verify.play import play
from miles_sim.verify.report import ContractView, Finding, FiredView, Report, Result, TargetView, Verdict, summarise
from miles_sim.verify.rule import Case, Level, Rule, Violation
from miles_sim.verify.struck import needed
from miles_sim.verify.survival import broken_off, with_play_ends

T = TypeVar("T")
_log = logging.getLogger("miles_sim.verify")

Progress = Callable[[str, int, int], None]
"""Called with (case name, number done, number in all) before each play."""


class Player(Protocol):
    """Plays and judges elsewhere, as many cases at the same time as it says."""

    @property
    def plays_at_once(self) -> int: ...

    def judged(self, scenario: Scenario, session: SessionVersion) -> Awaitable[tuple[Case | None, list[Judgement]]]: ...


@dataclass(frozen=True)
class Run:
    """A report and the cases behind it, by case name."""

    report: Report = field(repr=False)  # asyncio.run spells out what it returns: here, all that was played
    cases: dict[str, Case] = field(repr=False)


class SelectionError(ValueError):
    """A scenario pattern that matches no case, or two scenarios of one name."""


def select_cases(scenarios: Sequence[Scenario], patterns: Sequence[str]) -> list[tuple[Scenario, SessionVersion]]:
    """Cases whose `scenario` or `scenario/session` matches one of the glob `patterns`; all without a pattern."""
    cases = [(scenario, session) for scenario in scenarios for session in scenario.sessions]

    def matches(scenario: Scenario, session: str, pattern: str) -> bool:
        return fnmatchcase(scenario.name, pattern) or fnmatchcase(f"{scenario.name}/{session}", pattern)

    names = {scenario.name for scenario in scenarios}
    for pattern in patterns:
        if not any(matches(*case, pattern) for case in cases):
            raise SelectionError(f"scenario: {pattern!r} matches none of the {len(names)} scenarios")
    return [case for case in cases if not patterns or any(matches(*case, pattern) for pattern in patterns)]


async def verify(
    cases: Sequence[tuple[Scenario, SessionVersion]],
    target: Target,
    rules: Sequence[Rule],
    *,
    network: LocalNetwork | None = None,
    player: Player | None = None,
    seed: int = 0,
    complete: bool = True,
    baseline: Baseline | None = None,
    command: Sequence[str] = ("miles-sim", "verify"),
    files: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Run:
    """Play every case, judge it by every rule; a play that does not end is a violation of `session/play-ends`.

    As many plays go on at the same time as the target's `plays_at_once` says, by default one, or those of `player`,
    which stands for the same target; the report is the same.

    `seed` is added to each scenario's own. `complete`: the whole library and pack are at work, so a rule
    without a witness is vacuous and a baseline entry without an answer is reported. `command` opens each
    reproduction line; `files`: where a scenario that is not built in is read from, by its name. `SelectionError`
    for two cases of one name.
    """
    names = Counter(f"{scenario.name}/{session}" for scenario, session in cases)
    if twice := [name for name, number in names.items() if number > 1]:
        raise SelectionError(f"cases: {twice[0]!r} is there {names[twice[0]]} times")
    info = await target.describe()
    capabilities = frozenset(info["capabilities"])
    free = asyncio.Semaphore(getattr(player or target, "plays_at_once", 1))
    begun = itertools.count()

    async def one(scenario: Scenario, session: SessionVersion) -> tuple[Case | None, list[Judgement]]:
        name = f"{scenario.name}/{session}"
        async with free:
            if progress is not None:
                progress(name, next(begun), len(cases))
            need = next((each for each in needed(scenario, session) if each not in capabilities), None)
            if need is not None:
                reason = f"needs {need}: {info['absent'].get(need, 'the target does not claim it')}"
                return None, _not_applicable(rules, name, reason)
            seeded = scenario.model_copy(update={"seed": scenario.seed + seed})
            if player is not None:
                return await player.judged(seeded, session)
            return await judged(seeded, session, target, rules, network=network)

    done = await _all(one(*case) for case in cases)
    played = {case.name: case for case, _ in done if case is not None}
    judgements = [judgement for _, told in done for judgement in told]
    judgements += _across_sessions(played, judgements, rules)
    if seed:
        command = (*command, "--seed", str(seed))
    rules = with_play_ends(rules, judgements)
    report = _report(info, seed, rules, judgements, complete, baseline, command, files or {})
    fired = tuple(view for case in played.values() for view in _fired(case))
    return Run(report.model_copy(update={"fired": fired}), played)


async def judged(
    scenario: Scenario,
    session: SessionVersion,
    target: Target,
    rules: Sequence[Rule],
    *,
    network: LocalNetwork | None = None,
) -> tuple[Case | None, list[Judgement]]:
    """One play, None where it did not end, and what each rule says of it."""
    try:
        case = await play(scenario, target, session=session, network=network)
    except PlayError as error:
        name = f"{scenario.name}/{session}"
        _log.warning("%s: %s", name, error)
        return None, broken_off(name, error, rules)
    return case, judge(case, rules)


def _fired(case: Case) -> Iterator[FiredView]:
    every: list[Fired | Missed] = [*case.ledger.fired, *case.ledger.missed]
    for due in every:
        yield FiredView(
            scenario=case.name,
            kind=due.kind,
            rollout=due.rollout,
            step=due.step,
            attempt=due.attempt,
            could_not=(due.reason or "") if isinstance(due, Missed) else "",
        )


async def _all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What each of `work` gives, in order. Where one fails, none goes on."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _not_applicable(rules: Sequence[Rule], case: str, reason: str) -> list[Judgement]:
    return [Judgement(rule, case, Verdict.NOT_APPLICABLE, reason=reason) for rule in rules if rule.scope != "scenario"]


def _across_sessions(
    played: dict[str, Case], judgements: Sequence[Judgement], rules: Sequence[Rule]
) -> list[Judgement]:
    failed = frozenset(j.case for j in judgements if j.violations and j.rule.level < Level.MEANING)
    by_scenario: dict[str, dict[str, Case]] = defaultdict(dict)
    for case in played.values():
        by_scenario[case.scenario.name][case.session] = case
    return [
        judgement
        for cases in by_scenario.values()
        if len(cases) > 1
        for judgement in judge_scenario(cases, rules, failed)
    ]


def _report(
    info: TargetInfo,
    seed: int,
    rules: Sequence[Rule],
    judgements: Sequence[Judgement],
    complete: bool,
    baseline: Baseline | None,
    command: Sequence[str],
    files: Mapping[str, str],
) -> Report:
    known = baseline.reasons() if baseline else {}
    results = []
    for judgement in judgements:
        result = _result(judgement, command, files)
        entry = known.get((result.scenario, result.contract))
        if entry is not None and result.verdict is Verdict.VIOLATION:
            result = result.model_copy(update={"verdict": Verdict.KNOWN, "message": entry.reason})
        elif entry is not None and result.verdict is Verdict.PASS and not entry.varies:
            message = f"the baseline lists this as a violation: {entry.reason}"
            result = result.model_copy(update={"verdict": Verdict.UNEXPECTED_PASS, "message": message})
        results.append(result)
    told = (Verdict.KNOWN, Verdict.UNEXPECTED_PASS, Verdict.PASS)  # a pass that stands is of an entry that varies
    answered = {(r.scenario, r.contract) for r in results if r.verdict in told}
    unmatched = [f"{contract} on {scenario}" for scenario, contract in known if (scenario, contract) not in answered]
    by_rule: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_rule[result.contract].append(result)
    contracts = [_contract(rule, by_rule[rule.id], complete, info) for rule in rules]
    return Report(
        target=TargetView.model_validate(dict(info)),
        seed=seed,
        summary=summarise(results, contracts),
        contracts=tuple(contracts),
        results=tuple(results),
        unmatched_baseline=tuple(unmatched) if complete else (),
    )


def _result(judgement: Judgement, command: Sequence[str], files: Mapping[str, str]) -> Result:
    findings = tuple(map(_finding, judgement.violations))
    repro = ""
    if findings:
        name = judgement.case.split("/")[0]
        scenario = files.get(name, name if judgement.rule.scope == "scenario" else judgement.case)
        repro = shlex.join([*command, "--scenario", scenario, "--contract", judgement.rule.id])
    return Result(
        scenario=judgement.case,
        contract=judgement.rule.id,
        verdict=judgement.verdict,
        witnesses=judgement.witnesses,
        message=findings[0].message if findings else judgement.reason,
        where=findings[0].where if findings else "",
        repro=repro,
        findings=findings,
    )


def _finding(violation: Violation) -> Finding:
    place = violation.place
    return Finding(
        where=str(place),
        message=violation.message,
        expected=violation.expected,
        found=violation.found,
        rollout=place.rollout,
        sample=place.sample,
        tokens=place.tokens,
    )


_WORST_FIRST = (Verdict.VIOLATION, Verdict.UNEXPECTED_PASS, Verdict.KNOWN, Verdict.PASS, Verdict.BLOCKED)


def _contract(rule: Rule, results: Sequence[Result], complete: bool, info: TargetInfo) -> ContractView:
    present = {result.verdict for result in results}
    verdict = next((v for v in _WORST_FIRST if v in present), Verdict.NOT_APPLICABLE)
    reason = ""
    if verdict is Verdict.NOT_APPLICABLE:
        lacking = [result.message for result in results if result.message.startswith("needs ")]
        absent = sorted(rule.needs & info["absent"].keys())
        if lacking:
            reason = lacking[0]
        elif absent:
            reason = f"needs {absent[0]}: {info['absent'][absent[0]]}"
        elif complete:
            verdict, reason = Verdict.VACUOUS, "no scenario of the whole run gave it anything to look at"
        else:
            reason = "nothing to look at in the scenarios selected"
    return ContractView(
        id=rule.id,
        statement=rule.statement,
        severity=rule.severity.value,
        level=rule.level.name.lower(),
        witnesses=sum(result.witnesses for result in results),
        verdict=verdict,
        reason=reason,
    )
