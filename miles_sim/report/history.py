"""Comparisons and bisections as lines for a person."""

from collections.abc import Iterator, Sequence

from miles_sim.verify.bisect import Bisection, State, Step
from miles_sim.verify.compare import Change, Comparison


def comparison_lines(found: Comparison) -> Iterator[str]:
    """Worse first; what got out of sight after it; then what is better; the last line counts."""
    yield f"before: {found.before.name} {found.before.version}; after: {found.after.name} {found.after.version}"
    parts: list[tuple[str, Sequence[Change]]] = [
        ("worse", found.worse),
        ("held, and is not seen any more", found.lost),
        ("better", found.better),
        ("violated, and is not seen any more", found.hidden),
    ]
    for heading, changes in parts:
        if changes:
            yield f"{heading}:"
            yield from (line for change in changes for line in _change(change))
    for where, names in (("before", found.only_before), ("after", found.only_after)):
        if names:
            yield f"only {where}: {len(names)}, as {names[0]}"
    yield (
        f"{len(found.worse)} worse, {len(found.lost)} lost from sight, {len(found.better)} better, "
        f"{len(found.hidden)} violations not seen any more"
    )


def _change(change: Change) -> Iterator[str]:
    words = f"{change.before.value} -> {change.after.value}".replace("_", " ")
    yield f"  {change.contract} on {change.scenario}: {words}" + (f": {change.message}" if change.message else "")
    if change.repro:
        yield f"    {change.repro}"


def step_line(step: Step) -> str:
    """One revision that was tried."""
    return f"{step.revision[:12]} {step.state.value:<4} {step.subject[:60]}: {step.why.splitlines()[0]}"


def bisection_lines(found: Bisection) -> Iterator[str]:
    """The first bad commit, or those among which it is."""
    if found.first_bad is not None:
        yield f"first bad commit: {found.first_bad} {found.subject}"
        yield from (f"  {step.why}" for step in found.steps if step.revision == found.first_bad)
        return
    skipped = {step.revision: step for step in found.steps if step.state is State.SKIP}
    yield f"one of {len(found.candidates)} commits, of which those skipped cannot be told:"
    for revision in found.candidates:
        step = skipped.get(revision)
        yield f"  {revision}" + (f" {step.subject}: {step.why.splitlines()[0]}" if step else "")
