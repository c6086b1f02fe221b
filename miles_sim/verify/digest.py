"""Reports boiled down to a number a contract, small enough to commit: what verdict pages are made from."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field

from miles_sim.document import Document, DocumentError, read
from miles_sim.verify.report import Report, Verdict

SCHEMA: Literal["miles-sim/digest/1"] = "miles-sim/digest/1"
HISTORY: Literal["miles-sim/history/1"] = "miles-sim/history/1"


class Tally(Document):
    """One contract over a whole run: in how many cases what was said."""

    passed: int = 0
    violated: int = 0
    blocked: int = 0
    reason: str = ""
    """Why it is not applicable, where it is that everywhere."""


class Digest(Document):
    """One run of the whole pack on one target."""

    schema_: Literal["miles-sim/digest/1"] = Field(default=SCHEMA, alias="schema")
    label: str
    """What a column is headed with."""
    date: str = Field(pattern=r"^\d{4}-\d\d-\d\d$")
    """Of the run."""
    target: str
    version: str
    python: str
    cases: int
    contracts: dict[str, Tally]


class Repair(Document):
    """A bug of the public history: what the pack says of the commit before its fix, and of the fix."""

    pull: int
    """Number of the pull request."""
    parent: str
    fix: str
    symptom: str
    note: str = ""
    """Why it is not flagged, or still is."""
    before: dict[str, int] | None = None
    """Contract to the number of cases in which it is violated; None: this state could not be played."""
    after: dict[str, int] | None = None

    @property
    def cured(self) -> dict[str, tuple[int, int]]:
        """Contracts violated in fewer cases after the fix, with both numbers."""
        before, after = self.before or {}, self.after or {}
        return {id: (count, after.get(id, 0)) for id, count in before.items() if after.get(id, 0) < count}


class History(Document):
    """Bugs of the public history under contract."""

    schema_: Literal["miles-sim/history/1"] = Field(default=HISTORY, alias="schema")
    date: str = Field(pattern=r"^\d{4}-\d\d-\d\d$")
    repairs: tuple[Repair, ...]


def digest(report: Report, *, label: str, date: str) -> Digest:
    """What `report` says of each contract. `date` is the day of the run, which a report does not hold."""
    counts: dict[str, Counter[Verdict]] = defaultdict(Counter)
    for result in report.results:
        counts[result.contract][result.verdict] += 1
    return Digest(
        label=label,
        date=date,
        target=report.target.name,
        version=report.target.version,
        python=report.target.python,
        cases=len({result.scenario for result in report.results}),
        contracts={
            contract.id: Tally(
                passed=_sum(counts[contract.id], Verdict.PASS, Verdict.UNEXPECTED_PASS),
                violated=_sum(counts[contract.id], Verdict.VIOLATION, Verdict.KNOWN),
                blocked=_sum(counts[contract.id], Verdict.BLOCKED),
                reason=contract.reason,
            )
            for contract in report.contracts
        },
    )


def violated(report: Report) -> dict[str, int]:
    """Contract to the number of cases in which it is violated, in the order of contracts."""
    counts = Counter(r.contract for r in report.results if r.verdict in (Verdict.VIOLATION, Verdict.KNOWN))
    return dict(sorted(counts.items()))


def load_digests(files: Iterable[Path]) -> list[Digest]:
    """Digests of JSON files, in the order given; raises `DocumentError`."""
    return [read(Digest, _json(file), name=str(file)) for file in files]


def load_history(file: Path) -> History:
    """The history in a JSON file; raises `DocumentError`."""
    return read(History, _json(file), name=str(file))


def _sum(counts: Counter[Verdict], *verdicts: Verdict) -> int:
    return sum(counts[verdict] for verdict in verdicts)


def _json(file: Path) -> object:
    import orjson

    try:
        return orjson.loads(file.read_bytes())
    except OSError as error:
        raise DocumentError(f"{file}: {error.strerror or error}") from None
    except orjson.JSONDecodeError as error:
        raise DocumentError(f"{file}: is no JSON: {error}") from None
