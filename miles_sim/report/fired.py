"""What faults did in a case, as lines."""

from collections.abc import Iterator

from miles_sim.report.text import cut
from miles_sim.verify.rule import Case

SHOWN = 24
"""Lines of one case; those beyond are counted."""


def fired_rows(case: Case) -> list[list[str]]:
    """A row a fault that struck, then those that could not; none for a case without."""
    rows = list(_rows(case))
    beyond = len(rows) - SHOWN
    return rows if beyond <= 0 else [*rows[:SHOWN], ["", f"… {beyond} more"]]


def _rows(case: Case) -> Iterator[list[str]]:
    for fired in case.ledger.fired:
        lost = f", lost {', '.join(name[:8] for name in fired.lost)}" if fired.lost else ""
        yield ["fired", fired.kind, f"rollout {fired.rollout}, step {fired.step}, attempt {fired.attempt}{lost}"]
    for missed in case.ledger.missed:
        place = f"rollout {missed.rollout}, step {missed.step}, attempt {missed.attempt}"
        yield ["could not", missed.kind, f"{place}: {cut(missed.reason or '', 80)}"]
