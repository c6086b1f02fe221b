"""Counting: what killed how many, by module."""

from collections import Counter
from collections.abc import Sequence

from .judge import Verdict
from .mutants import ROOT, Mutant

KILLED = ("law", "import", "hang", "crash", "rule", "snapshot")
ALIVE = ("survived", "unreached", "error")


def row(mutant: Mutant, verdict: Verdict) -> dict[str, str]:
    """A mutant and what became of it, as plain data."""
    return {
        "id": mutant.id,
        "where": f"{mutant.path.relative_to(ROOT)}:{mutant.first}",
        "module": mutant.module.removeprefix("miles_sim.rollout."),
        "function": mutant.function,
        "statement": mutant.statement,
        "before": mutant.before,
        "after": mutant.after,
        "verdict": verdict.verdict,
        "by": verdict.by,
    }


def summary(rows: Sequence[dict[str, str]]) -> tuple[str, float]:
    """A table, and the share that was killed."""
    lines = ["module".ljust(24) + "".join(name.rjust(10) for name in ("mutants", *KILLED, *ALIVE, "killed"))]
    for module in sorted({row["module"] for row in rows}):
        lines.append(_line(module, [row for row in rows if row["module"] == module]))
    lines.append(_line("all", rows))
    return "\n".join(lines) + "\n", _share(rows)


def _line(name: str, rows: Sequence[dict[str, str]]) -> str:
    counts = Counter(row["verdict"] for row in rows)
    cells = [len(rows), *(counts[verdict] for verdict in (*KILLED, *ALIVE))]
    return name.ljust(24) + "".join(str(cell).rjust(10) for cell in cells) + f"{_share(rows):10.1%}"


def _share(rows: Sequence[dict[str, str]]) -> float:
    return sum(row["verdict"] in KILLED for row in rows) / max(len(rows), 1)
