"""The rule API: how a contract is written.

    @rule("identity/siblings-share-id", level="meaning", reason="…", source="…", needs={"session.v2"})
    def siblings_share_id(case, rollout, see):
        '''All samples of one rollout carry the same rollout_id.'''
        if len(rollout.samples) > 1:
            for sample in rollout.samples: see.equal(…)

The docstring is the statement. What the function takes decides how often it is called: `(case, see)` once a
case, `(case, rollout, see)` once a rollout, `(case, rollout, sample, see)` once a sample; `(cases, see)` once
a scenario that was played under several session versions, with one case each.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import cached_property
from typing import Any, Literal

from miles_sim.ledger import Fired, Generation, Ledger, Turn
from miles_sim.scenarios.model import RolloutInput, Scenario, SessionVersion
from miles_sim.targets.observation import Observation, RolloutView, SampleView
from miles_sim.tokenizer import FAMILIES
from miles_sim.verify.alignment import Alignment, align
from miles_sim.verify.lineage import Lineage, asked, lineage, questions
from miles_sim.verify.tap import Exchange


class Level(IntEnum):
    """What fails lower blocks the same sample's higher checks."""

    SCHEMA = 0
    STRUCTURE = 1
    ALIGNMENT = 2
    MEANING = 3


class Severity(Enum):
    """How bad a violation is."""

    MUST = "must"
    """Wrong training data or a broken promise."""
    SHOULD = "should"
    """A misleading figure."""
    PIN = "pin"
    """What is observed, recorded."""


@dataclass(frozen=True)
class RolloutCase:
    """One rollout of a case, with its own part of the truth."""

    number: int
    view: RolloutView
    input: RolloutInput
    turns: tuple[Turn, ...]
    generations: tuple[Generation, ...]
    """All that its agent was answered with, superseded attempts included; and what a fault kept from it."""
    max_trim_tokens: int = 0
    """Of the scenario's tokenizer family."""
    picker: str = "default"
    """Which leaves become samples (`Scenario.hooks.picker`)."""
    lost: tuple[Fired, ...] = ()
    """Faults that made generations whose reply did not reach its agent as it was."""

    @property
    def samples(self) -> tuple[SampleView, ...]:
        return self.view.samples

    @cached_property
    def lineage(self) -> Lineage:
        """Which generation continues which."""
        present = {g.id for found in self.alignments for g in found.generations} if self.lost else frozenset()
        return lineage(self.turns, self.generations, self.picker, self.lost, present)

    @cached_property
    def _questions(self) -> dict[str, str]:
        return questions(self.turns)

    def question(self, turn: Turn) -> str:
        """Key of the step that first asked what this turn asks: where the faults of HTTP edges say they struck."""
        return self._questions[asked(turn)]

    @cached_property
    def kept(self) -> tuple[Generation, ...]:
        """Those that the trainer must see: on the path of a leaf that is chosen."""
        return tuple(node.generation for node in self.lineage.kept)

    @cached_property
    def alignments(self) -> tuple[Alignment, ...]:
        """The generations along each sample."""
        return tuple(
            align(sample.tokens, sample.response_length, self.generations, max_trim=self.max_trim_tokens)
            for sample in self.samples
        )

    def alignment(self, sample: SampleView) -> Alignment:
        """The generations along one of `samples`."""
        return self._alignment_by_object[id(sample)]

    @cached_property
    def _alignment_by_object(self) -> dict[int, Alignment]:
        return {id(sample): found for sample, found in zip(self.samples, self.alignments, strict=True)}


@dataclass(frozen=True)
class Case:
    """One play, ready to be judged: scenario and ledger say what is true, observation and exchanges what came out."""

    scenario: Scenario
    session: SessionVersion
    ledger: Ledger
    observation: Observation
    capabilities: frozenset[str] = frozenset()
    exchanges: Mapping[str, Exchange] = field(default_factory=dict, compare=False)
    """What the target asked the engine and was answered, by response id."""
    second: "Case | None" = None
    """The other play of a scenario that is `replayed`."""

    @property
    def name(self) -> str:
        """`scenario/session`, as reports and `--scenario` name it."""
        return f"{self.scenario.name}/{self.session}"

    @cached_property
    def rollouts(self) -> tuple[RolloutCase, ...]:
        return tuple(
            RolloutCase(
                number=number,
                view=view,
                input=self.scenario.rollouts[number],
                turns=self.ledger.turns_of(number),
                generations=self._generations_of(number),
                max_trim_tokens=FAMILIES[self.scenario.engine.tokenizer].max_trim_tokens,
                picker=self.scenario.hooks.picker,
                lost=tuple(fired for fired in self.ledger.fired if fired.rollout == number and fired.lost),
            )
            for number, view in enumerate(self.observation.rollouts)
        )

    def _generations_of(self, rollout: int) -> tuple[Generation, ...]:
        """Those that a fault kept from its agent, then those that it was answered with: of two that said the very same
        thing, the latter is meant."""
        told = self.ledger.generations_of(rollout)
        lost = {name for fired in self.ledger.fired if fired.rollout == rollout for name in fired.lost}
        lost -= {g.id for g in told}
        return (*(g for g in self.ledger.generations if g.id in lost), *told)


@dataclass(frozen=True)
class Place:
    """Where in a case something was seen."""

    rollout: int | None = None
    sample: int | None = None
    detail: str = ""
    tokens: tuple[tuple[int, int], ...] = ()
    """Positions in the sample's tokens that are meant: stretches from, up to and without, in order."""

    def __str__(self) -> str:
        parts = [f"rollout {self.rollout}"] if self.rollout is not None else []
        parts += [f"sample {self.sample}"] if self.sample is not None else []
        return ", ".join([*parts, self.detail] if self.detail else parts) or "case"


@dataclass(frozen=True)
class Violation:
    """One thing that a rule found broken."""

    rule: str
    place: Place
    message: str
    expected: str = ""
    found: str = ""


@dataclass
class Recorder:
    """Counts what a check really looked at, and takes down what it found broken."""

    rule: str
    place: Place = Place()
    witnesses: int = 0
    violations: list[Violation] = field(default_factory=list)

    def equal(self, found: Any, expected: Any, message: str, detail: str = "") -> bool:
        """One witness; a violation unless `found == expected`."""
        return self.that(found == expected, message, expected=expected, found=found, detail=detail)

    def that(
        self,
        holds: bool,
        message: str,
        *,
        expected: Any = "",
        found: Any = "",
        detail: str = "",
        sample: int | None = None,
        tokens: Iterable[int] = (),
    ) -> bool:
        """One witness; a violation unless it `holds`. `detail` says where within the rollout or sample.

        `tokens`: the positions in a sample's tokens that are wrong, which reports mark; a rule that is asked once a
        rollout says with `sample` in which of its samples.
        """
        self.witnesses += 1
        if not holds:
            of_sample = self.place.sample if sample is None else sample
            place = Place(self.place.rollout, of_sample, detail, stretches(tokens))
            self.violations.append(Violation(self.rule, place, message, brief(expected), brief(found)))
        return holds


def stretches(positions: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Positions as stretches without gaps, first to last."""
    found: list[tuple[int, int]] = []
    for position in sorted(set(positions)):
        if found and found[-1][1] == position:
            found[-1] = (found[-1][0], position + 1)
        else:
            found.append((position, position + 1))
    return tuple(found)


def brief(value: Any, limit: int = 160) -> str:
    """A value for a report: strings as they are, others by repr, cut in the middle."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else f"{text[: limit - 40]} … {text[-36:]}"


Check = Callable[..., None]
Scope = Literal["case", "rollout", "sample", "scenario"]
_SCOPES: dict[tuple[str, int], Scope] = {
    ("case", 2): "case",
    ("case", 3): "rollout",
    ("case", 4): "sample",
    ("cases", 2): "scenario",
}


@dataclass(frozen=True)
class Rule:
    """One contract."""

    id: str
    """`area/name`."""
    statement: str
    reason: str
    """Why it matters: what goes wrong in training without it."""
    source: str
    """Where the promise comes from: a pull request, a protocol, a design decision."""
    level: Level
    severity: Severity
    needs: frozenset[str]
    """Capabilities a target must have for the rule to apply."""
    after: frozenset[str]
    """Rules whose violation at the same place hides this one: the same fault told twice helps nobody."""
    scope: Scope
    check: Check

    @property
    def area(self) -> str:
        return self.id.split("/", 1)[0]


class RuleError(ValueError):
    """A rule that is not well formed."""


def rule(
    id: str,
    *,
    level: Literal["schema", "structure", "alignment", "meaning"],
    reason: str,
    source: str,
    severity: Literal["must", "should", "pin"] = "must",
    needs: Iterable[str] = (),
    after: Iterable[str] = (),
) -> Callable[[Check], Rule]:
    """Make a `Rule` of a check function; its docstring is the statement, its parameters the scope."""

    def make(check: Check) -> Rule:
        statement = inspect.getdoc(check) or ""
        parameters = list(inspect.signature(check).parameters)
        scope = _SCOPES.get((parameters[0] if parameters else "", len(parameters)))
        if "/" not in id:
            raise RuleError(f"rule {id!r}: an id is area/name")
        if not statement:
            raise RuleError(f"rule {id!r}: the check has no docstring, which is its statement")
        if scope is None:
            raise RuleError(f"rule {id!r}: a check takes (case[, rollout[, sample]], see) or (cases, see)")
        return Rule(
            id=id,
            statement=" ".join(statement.split()),
            reason=reason,
            source=source,
            level=Level[level.upper()],
            severity=Severity(severity),
            needs=frozenset(needs),
            after=frozenset(after),
            scope=scope,
            check=check,
        )

    return make
