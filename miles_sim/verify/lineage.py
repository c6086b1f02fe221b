"""The tree of a rollout as the agent knows it: which generation continues which, and what it asked again."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    turns: Iterable[Turn],
    generations: Iterable[Generation],
    picker: str = "default",
    untold: Iterable[Node] = (),
) -> Lineage:
    """The tree of the requests that were answered, and `untold` ones. `picker`: as `Lineage` has it."""
    by_id = {generation.id: generation for generation in generations}
    answered = [turn for turn in turns if turn.response_id in by_id]
    superseded = {turn.retry_of for turn in answered}
    told = [
        Node(turn, by_id[turn.response_id], turn.question in superseded)
        for turn in answered
        if turn.response_id is not None
    ]
    return Lineage((*told, *untold), picker)


def untold(turns: Sequence[Turn], lost: Iterable[Fired], present: Mapping[str, Generation]) -> Iterator[Node]:
    """A node for each generation in `present` whose reply was lost on its way to the agent.

    It stands beside its step's own, and was asked again if the agent got another reply to that step.
    """
    told = {turn.response_id for turn in turns}
    for fired in lost:
        asked = next((turn for turn in turns if turn.step == fired.step), None)
        for number, name in enumerate(fired.lost, start=1):
            if asked is None or name in told or name not in present:
                continue
            again = any(turn.response_id is not None and fired.step in (turn.step, turn.retry_of) for turn in turns)
            turn = asked.model_copy(update={"step": f"{fired.step}^{fired.attempt}.{number}", "response_id": name})
            yield Node(turn, present[name], superseded=again, told=False)
