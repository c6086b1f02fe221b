"""Two reports side by side: what got worse, what got better."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from miles_sim.document import Document, DocumentError, read
from miles_sim.verify.report import Report, Result, TargetView, Verdict

SCHEMA: Literal["miles-sim/comparison/1"] = "miles-sim/comparison/1"

_BROKEN = frozenset({Verdict.VIOLATION, Verdict.KNOWN})
_WHOLE = frozenset({Verdict.PASS, Verdict.UNEXPECTED_PASS})
"""A baseline only names what is known: what was seen is a violation or a pass with it or without."""


class Change(Document):
    """One contract on one case, in both reports."""

    contract: str
    scenario: str
    """Case name: `scenario/session`."""
    before: Verdict
    after: Verdict
    message: str = ""
    """Of the report that has something to say."""
    repro: str = ""


class Comparison(Document):
    """What differs between two reports, in the order of the second."""

    schema_: Literal["miles-sim/comparison/1"] = Field(default=SCHEMA, alias="schema")
    before: TargetView
    after: TargetView
    worse: tuple[Change, ...] = ()
    """Violated in the second report alone."""
    better: tuple[Change, ...] = ()
    """Violated in the first report, and seen to hold in the second."""
    lost: tuple[Change, ...] = ()
    """Held in the first report; the second says neither that it holds nor that it is violated."""
    hidden: tuple[Change, ...] = ()
    """Violated in the first report; the second says neither."""
    only_before: tuple[str, ...] = ()
    """`contract on case` that the second report does not have at all."""
    only_after: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Nothing got worse, and nothing that held went out of sight."""
        return not (self.worse or self.lost)


def compare(before: Report, after: Report) -> Comparison:
    """What changed from `before` to `after`. A violation of what `before` did not play is worse too."""
    old = {_key(result): result for result in before.results}
    new = {_key(result): result for result in after.results}
    found: dict[str, list[Change]] = {"worse": [], "better": [], "lost": [], "hidden": []}
    for key, result in new.items():
        was = old.get(key)
        kind = _kind(was.verdict if was else Verdict.NOT_APPLICABLE, result.verdict)
        if kind is not None:
            found[kind].append(_change(was, result))
    return Comparison.model_validate(
        {
            "before": before.target,
            "after": after.target,
            **found,
            "only_before": [_words(key) for key in old if key not in new],
            "only_after": [_words(key) for key in new if key not in old],
        }
    )


def load_report(path: str | Path) -> Report:
    """The report in a JSON file, as `verify --json` writes it; raises `DocumentError`."""
    import orjson

    try:
        data = orjson.loads(Path(path).read_bytes())
    except OSError as error:
        raise DocumentError(f"report: {path}: {error.strerror or error}") from None
    except orjson.JSONDecodeError as error:
        raise DocumentError(f"report: {path}: is no JSON: {error}") from None
    return read(Report, data, name=str(path))


def _kind(before: Verdict, after: Verdict) -> str | None:
    if after in _BROKEN:
        return None if before in _BROKEN else "worse"
    if after in _WHOLE:
        return "better" if before in _BROKEN else None
    if before in _BROKEN:
        return "hidden"
    return "lost" if before in _WHOLE else None


def _change(was: Result | None, result: Result) -> Change:
    told = result if result.message or was is None else was
    return Change(
        contract=result.contract,
        scenario=result.scenario,
        before=was.verdict if was else Verdict.NOT_APPLICABLE,
        after=result.verdict,
        message=told.message,
        repro=result.repro,
    )


def _key(result: Result) -> tuple[str, str]:
    return result.contract, result.scenario


def _words(key: tuple[str, str]) -> str:
    return f"{key[0]} on {key[1]}"
