"""What need not hold because a fault fired that is declared to change it."""

from miles_sim.faults.catalogue import kind_named
from miles_sim.verify.rule import Case, Rule

_NOT_COUNTED = frozenset({"sessions_open", "requests_open"})
"""What a kind may change and no rule on counters looks at."""


def allowance(rule: Rule, case: Case, rollout: int | None = None) -> str | None:
    """Why a rule on counters is not asked of a rollout, or of a case; None where it is."""
    if not rule.id.startswith("counters/"):
        return None
    for fired in case.ledger.fired:
        kind = kind_named(fired.kind)
        if kind.counters <= _NOT_COUNTED:
            continue
        fields = sorted(kind.counters - _NOT_COUNTED)
        if kind.radius == "engine" or rollout in (None, fired.rollout):
            return f"fault {kind.name} may change {', '.join(fields)}"
    return None
