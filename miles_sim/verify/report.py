"""The verify report: verdicts as a versioned document, the same for people and machines."""

from collections.abc import Iterable
from enum import Enum
from typing import Literal

from pydantic import Field

from miles_sim.document import Document

SCHEMA: Literal["miles-sim/report/3"] = "miles-sim/report/3"

SCOPE = (
    "What no CPU can show is not claimed: that logprobs agree with real kernels, that experts are routed as on "
    "the device, that weights arrive, that drafts are accepted as on real models."
)


class Verdict(Enum):
    """What a contract says."""

    PASS = "pass"
    VIOLATION = "violation"
    KNOWN = "known"
    """A violation that the baseline lists."""
    UNEXPECTED_PASS = "unexpected_pass"
    """The baseline lists a violation that is gone."""
    NOT_APPLICABLE = "not_applicable"
    BLOCKED = "blocked"
    """A lower level failed at the same place."""
    VACUOUS = "vacuous"
    """Nothing in the whole run was looked at."""


FAILING = frozenset({Verdict.VIOLATION, Verdict.UNEXPECTED_PASS, Verdict.VACUOUS})


class Finding(Document):
    """One thing found broken."""

    where: str
    message: str
    expected: str = ""
    found: str = ""
    rollout: int | None = None
    sample: int | None = None
    tokens: tuple[tuple[int, int], ...] = ()
    """Stretches of the sample's tokens that are meant: from, up to and without."""


class Result(Document):
    """One contract on one case."""

    scenario: str
    """Case name: `scenario/session`."""
    contract: str
    verdict: Verdict
    witnesses: int = 0
    message: str = ""
    """Of the first finding; or why it is not applicable or blocked; or the baseline's reason."""
    where: str = ""
    repro: str = ""
    """One shell line that shows it again; empty where nothing is wrong."""
    findings: tuple[Finding, ...] = ()


class ContractView(Document):
    """One contract over the whole run."""

    id: str
    statement: str
    severity: str
    level: str
    witnesses: int
    verdict: Verdict
    reason: str = ""
    """Why it is vacuous or not applicable."""


class TargetView(Document):
    """What was put under contract."""

    name: str
    version: str
    python: str
    optimize: int = 0
    capabilities: tuple[str, ...] = ()
    absent: dict[str, str] = {}
    stand_ins: tuple[str, ...] = ()


class Summary(Document):
    """How many results of each verdict; `vacuous` counts contracts."""

    passed: int = Field(default=0, alias="pass")
    violation: int = 0
    known: int = 0
    unexpected_pass: int = 0
    not_applicable: int = 0
    blocked: int = 0
    vacuous: int = 0


class FiredView(Document):
    """One fault that was due in a case."""

    scenario: str
    """Case name: `scenario/session`."""
    kind: str
    rollout: int
    step: str
    attempt: int
    could_not: str = ""
    """Why it did not strike; empty where it did."""


class Report(Document):
    """One verify run."""

    schema_: Literal["miles-sim/report/1", "miles-sim/report/2", "miles-sim/report/3"] = Field(
        default=SCHEMA, alias="schema"
    )
    """Version 1 has no `findings`, version 2 no `fired`; both are read as they are."""
    scope: str = SCOPE
    target: TargetView
    seed: int
    summary: Summary
    contracts: tuple[ContractView, ...]
    results: tuple[Result, ...]
    fired: tuple[FiredView, ...] = ()
    """In the order of cases, then of places."""
    unmatched_baseline: tuple[str, ...] = ()
    """Baseline entries that nothing in the run answers to."""

    @property
    def holds(self) -> bool:
        """Nothing violated, nothing vacuous, the baseline exactly as it says."""
        summary = self.summary
        return not (summary.violation or summary.unexpected_pass or summary.vacuous or self.unmatched_baseline)

    def to_json(self) -> bytes:
        """The document's bytes: indented JSON, one final newline, the same for the same run."""
        import orjson

        return orjson.dumps(self.model_dump(mode="json", by_alias=True), option=orjson.OPT_INDENT_2) + b"\n"


def summarise(results: Iterable[Result], contracts: Iterable[ContractView]) -> Summary:
    """Counts of `results`, and of vacuous `contracts`."""
    counts = dict.fromkeys((verdict.value for verdict in Verdict), 0)
    for result in results:
        counts[result.verdict.value] += 1
    counts["vacuous"] = sum(contract.verdict is Verdict.VACUOUS for contract in contracts)
    return Summary.model_validate(counts)
