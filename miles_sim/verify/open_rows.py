"""Known bugs that are open, and which contracts report each: a table that a report fills in."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from pydantic import Field

from miles_sim.document import Document, DocumentError, read
from miles_sim.verify.report import Report, Result, Verdict

SCHEMA: Literal["miles-sim/open-rows/1"] = "miles-sim/open-rows/1"
_VIOLATED = (Verdict.VIOLATION, Verdict.KNOWN)


class Sign(Document):
    """What tells a bug: a contract on some scenarios, and what of its findings."""

    contract: str
    scenario: str = "*"
    """Glob over `scenario/session`."""
    says: str = ""
    """Part of a finding's message or place; empty: any finding."""
    violated: tuple[str, ...] = ()
    """Cases in which it is found, in the report's order."""
    held: int = 0
    """Cases in which the contract had something to look at, and held."""


class OpenRow(Document):
    """One bug."""

    row: str = Field(pattern=r"^[A-Z]\d+$")
    what: str
    signs: tuple[Sign, ...] = ()
    note: str = ""
    """Why nothing can tell it, or what else there is to know."""

    @property
    def flagged(self) -> bool:
        return any(sign.violated for sign in self.signs)


class OpenRows(Document):
    """The bugs of one state of a target."""

    schema_: Literal["miles-sim/open-rows/1"] = Field(default=SCHEMA, alias="schema")
    label: str
    """Whose bugs they are."""
    date: str = Field(pattern=r"^\d{4}-\d\d-\d\d$")
    """Of the run."""
    rows: tuple[OpenRow, ...]


def filled(rows: OpenRows, report: Report, *, date: str) -> OpenRows:
    """The same rows with what `report` says of their signs. DocumentError for a contract that it does not have."""
    known = {contract.id for contract in report.contracts}
    for row in rows.rows:
        strange = [sign.contract for sign in row.signs if sign.contract not in known]
        if strange:
            raise DocumentError(f"row {row.row}: the report has no contract {strange[0]!r}")
    changed = [row.model_copy(update={"signs": tuple(_seen(s, report) for s in row.signs)}) for row in rows.rows]
    return rows.model_copy(update={"date": date, "rows": tuple(changed)})


def load_open_rows(file: Path) -> OpenRows:
    """The rows in a JSON file; raises `DocumentError`."""
    import orjson

    try:
        return read(OpenRows, orjson.loads(file.read_bytes()), name=str(file))
    except OSError as error:
        raise DocumentError(f"{file}: {error.strerror or error}") from None
    except orjson.JSONDecodeError as error:
        raise DocumentError(f"{file}: is no JSON: {error}") from None


def _seen(sign: Sign, report: Report) -> Sign:
    results = [r for r in report.results if r.contract == sign.contract and fnmatchcase(r.scenario, sign.scenario)]
    violated = tuple(result.scenario for result in results if _tells(sign, result))
    held = sum(result.verdict in (Verdict.PASS, Verdict.UNEXPECTED_PASS) for result in results)
    return sign.model_copy(update={"violated": violated, "held": held})


def _tells(sign: Sign, result: Result) -> bool:
    if result.verdict not in _VIOLATED:
        return False
    return not sign.says or any(sign.says in f"{finding.message} {finding.where}" for finding in result.findings)
