"""The tree of a rollout's generations as the agent made them, one line each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from miles_sim.agent.plan import Compact, Retry, Say, Tool, walk
from miles_sim.ledger import Generation, Turn
from miles_sim.report.text import columns, cut
from miles_sim.verify.rule import Case, RolloutCase

SHOWN_ROLLOUTS = 2
"""Rollouts of one case that are shown in full; a scenario's rollouts all play the same plan."""


ASKING = (Say, Tool, Compact, Retry)
"""Kinds of step that make a request."""


@dataclass(frozen=True)
class Branch:
    """A turn, with what was asked on from its reply."""

    turn: Turn
    children: tuple["Branch", ...]


def branches(turns: Sequence[Turn]) -> tuple[Branch, ...]:
    """The roots of one rollout's turns, each with its tree below it, in the plan's order."""
    built: dict[str, Branch] = {}
    below: dict[str | None, list[Branch]] = {}
    for turn in reversed(turns):
        built[turn.step] = Branch(turn, tuple(reversed(below.pop(turn.step, []))))
        below.setdefault(turn.parent, []).append(built[turn.step])
    rest = {id(branch) for found in below.values() for branch in found}
    return tuple(built[turn.step] for turn in turns if id(built[turn.step]) in rest)


def branching(case: Case) -> bool:
    """Some rollout has more than one path from a root to a leaf."""
    return any(_leaves(rollout.turns) > 1 for rollout in case.rollouts)


def tree_lines(case: Case, *, rollouts: int = SHOWN_ROLLOUTS) -> list[str]:
    """The trees of the first `rollouts`. A line directly below another, without a branch, continues it."""
    lines: list[str] = []
    for rollout in case.rollouts[:rollouts]:
        lines += [_rollout_line(rollout), *_rollout_tree(rollout), *_never_asked(case, rollout)]
    if len(case.rollouts) > rollouts:
        lines.append(f"… {len(case.rollouts) - rollouts} more rollouts of the same plan")
    return lines


def _leaves(turns: Sequence[Turn]) -> int:
    parents = {turn.parent for turn in turns}
    return sum(turn.step not in parents for turn in turns)


def _rollout_line(rollout: RolloutCase) -> str:
    given = rollout.input
    ids = [("index", given.index), ("rollout_id", given.rollout_id), ("group", given.group_index)]
    told = ", ".join(f"{name} {'none' if value is None else value}" for name, value in ids)
    return f"rollout {rollout.number}: {told}"


def _rollout_tree(rollout: RolloutCase) -> list[str]:
    if not rollout.turns:
        return ["└─ no request was made"]
    generations = {g.id: g for g in rollout.generations}
    superseded = {
        turn.retry_of: turn.step for turn in rollout.turns if turn.retry_of is not None and turn.response_id is not None
    }
    rows = [
        _row(lead, turn, generations.get(turn.response_id or ""), superseded.get(turn.step))
        for lead, turn in _drawn(branches(rollout.turns), "")
    ]
    return columns(rows)


def _never_asked(case: Case, rollout: RolloutCase) -> list[str]:
    """Steps of the plan that the agent did not come to, since it raised or was refused."""
    asked = {turn.step for turn in rollout.turns}
    missing = [key for key, step in walk(case.scenario.plan.steps) if isinstance(step, ASKING) and key not in asked]
    return [f"   never asked: {cut(', '.join(missing), 100)}"] if missing else []


def _drawn(found: tuple[Branch, ...], indent: str) -> Iterator[tuple[str, Turn]]:
    """Each turn with the lines to its left."""
    for number, branch in enumerate(found, start=1):
        last = number == len(found)
        yield indent + ("└─ " if last else "├─ "), branch.turn
        inner, children = indent + ("   " if last else "│  "), branch.children
        while len(children) == 1:
            yield inner, children[0].turn
            children = children[0].children
        yield from _drawn(children, inner)


def _row(lead: str, turn: Turn, generation: Generation | None, superseded_by: str | None) -> list[str]:
    name = f"{lead}{turn.step} {turn.kind}"
    if generation is None:
        return [name, "no answer" if turn.status == 0 else f"HTTP {turn.status}"]
    notes = [f"asks {turn.retry_of} again"] if turn.retry_of is not None else []
    notes += [f"superseded by {superseded_by}"] if superseded_by is not None else []
    return [
        name,
        f"{len(generation.prompt_ids)}→{len(generation.output_ids)}",
        turn.finish_reason or str(generation.finish_reason.get("type")),
        _spec(generation),
        f"cached {generation.cached_tokens}",
        ", ".join(notes),
    ]


def _spec(generation: Generation) -> str:
    spec = generation.spec
    return "" if spec is None else f"accepted {spec.accepted}/{spec.drafted} in {spec.verify_ct}"
