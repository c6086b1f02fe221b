"""The tree of a rollout as the agent knows it: which generation continues which, and what it asked again."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from miles_sim.ledger import Fired, Generation, Turn


@dataclass(frozen=True)
class Node:
    """One answered request of the agent."""

    turn: Turn
    generation: Generation
    superseded: bool
    """It was asked again, and answered."""
    told: bool = True
    """The agent was answered with it. False: its reply was lost on the way, and a session server may have it."""

    @property
    def step(self) -> str:
        return self.turn.step


@dataclass(frozen=True)
class Lineage:
    """The nodes of one rollout in plan order."""

    nodes: tuple[Node, ...]
    picker: str = "default"
    """Which leaves are chosen (`Scenario.hooks.picker`); one that fails chooses as by default."""

    @cached_property
    def by_step(self) -> dict[str, Node]:
        return {node.step: node for node in self.nodes}

    @cached_property
    def by_id(self) -> dict[str, Node]:
        """Node of a generation's id."""
        return {node.generation.id: node for node in self.nodes}

    @cached_property
    def children(self) -> dict[str, tuple[Node, ...]]:
        """Step to the nodes that continue its reply."""
        found: dict[str, list[Node]] = {node.step: [] for node in self.nodes}
        for node in self.nodes:
            if node.turn.parent in found:
                found[node.turn.parent].append(node)
        return {step: tuple(nodes) for step, nodes in found.items()}

    @cached_property
    def leaves(self) -> tuple[Node, ...]:
        """Ends of the paths that the trainer must see: nothing continues them, and they were not asked again; or what
        a picker of someone's own chooses."""
        ends = tuple(node for node in self.nodes if not self.children[node.step])
        chosen = {"all": ends, "none": (), "earliest": ends[:1], "latest": ends[-1:]}
        return chosen.get(self.picker, tuple(node for node in ends if not node.superseded))

    @cached_property
    def kept(self) -> tuple[Node, ...]:
        """Nodes on the path of a leaf. One that was asked again is among them where another path stands on it."""
        steps = {node.step for leaf in self.leaves for node in self.path(leaf)}
        return tuple(node for node in self.nodes if node.step in steps)

    @cached_property
    def dropped(self) -> tuple[Node, ...]:
        """Nodes on no leaf's path."""
        kept = {node.step for node in self.kept}
        return tuple(node for node in self.nodes if node.step not in kept)

    def parent(self, node: Node) -> Node | None:
        return self.by_step.get(node.turn.parent) if node.turn.parent is not None else None

    def path(self, node: Node) -> tuple[Node, ...]:
        """Root to `node`."""
        path = [node]
        while (parent := self.parent(path[-1])) is not None:
            path.append(parent)
        return tuple(reversed(path))


def lineage(
    turns: Sequence[Turn],
    generations: Iterable[Generation],
    picker: str = "default",
    lost: Iterable[Fired] = (),
    present: Container[str] = frozenset(),
) -> Lineage:
    """The tree of the requests that were answered. `picker`: as `Lineage` has it.

    Of the generations whose reply was `lost` on its way to the agent, those that are `present` in samples stand beside
    their step's own: a session server has recorded them.
    """
    by_id = {generation.id: generation for generation in generations}
    answered = [turn for turn in turns if turn.response_id in by_id]
    again = {turn.retry_of for turn in answered}
    told = [
        Node(turn, by_id[turn.response_id], turn.question in again) for turn in answered if turn.response_id is not None
    ]
    untold = [
        Node(turn, by_id[turn.response_id], superseded=False, told=False)
        for turn in _untold(turns, lost)
        if turn.response_id in by_id and turn.response_id in present
    ]
    if not untold:
        return Lineage(tuple(told), picker)
    order = _Order(turns)
    return Lineage(
        (
            *(replace(a, superseded=a.superseded or any(order.again(a, b) for b in untold)) for a in told),
            *(replace(a, superseded=any(order.again(a, b) for b in (*told, *untold))) for a in untold),
        ),
        picker,
    )


def _untold(turns: Sequence[Turn], lost: Iterable[Fired]) -> Iterator[Turn]:
    """A turn for each generation whose reply was lost: as if its step had been answered with it."""
    told = {turn.response_id for turn in turns}
    by_step = {turn.step: turn for turn in turns}
    for fired in lost:
        turn = by_step.get(fired.step)
        for number, name in enumerate(fired.lost, start=1):
            if turn is not None and name not in told:
                step = f"{fired.step}^{fired.attempt}.{number}"
                yield turn.model_copy(update={"step": step, "response_id": name})


class _Order:
    """Which of two replies came of a request that asked the other's again, where one of them was lost.

    Who lost it cannot say which of its requests it answered; the engine's own count of attempts can. Where a step asked
    several things (`~`) and lost one, another prompt is another question; and of two that ask the same at the
    same time, neither asks the other again.
    """

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._questions = questions(turns)
        self._lost_kinds: dict[str, set[str]] = {}
        for turn in turns:
            if "~" in turn.step and turn.response_id is None:
                self._lost_kinds.setdefault(self._questions[turn.step], set()).add(turn.kind)

    def again(self, one: Node, other: Node) -> bool:
        """`other` is the reply to `one`'s question, asked once more."""
        question = self._questions[asked(one.turn)]
        if one is other or question != self._questions[asked(other.turn)]:
            return False
        lost = self._lost_kinds.get(question, set())
        if one.generation.prompt_ids != other.generation.prompt_ids:
            return other.told and not lost and "~" not in other.step
        if "extra" in lost and all(node.turn.retry_of is None for node in (one, other)):
            return False
        return other.generation.attempt > one.generation.attempt


def asked(turn: Turn) -> str:
    """Key of the turn whose request it is: its own, but for one that `lineage` made up."""
    return turn.step.partition("^")[0]


def questions(turns: Iterable[Turn]) -> dict[str, str]:
    """Key of each turn to that of the plan's step that asked the same thing first."""
    found: dict[str, str] = {}
    for turn in turns:  # what is asked again stands before
        again = found.get(turn.retry_of) if turn.retry_of is not None else None
        found[turn.step] = again or turn.step.partition("~")[0]
    return found
