"""Random forests of records that know, from how they were made, what their samples must be."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import strategies as st

from miles_sim.rollout.record import Record
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import FIRST_PIECE, ByteTokenizer

FINISHES = ("stop", "stop", "tool_calls", "length", "abort")
OPENERS = {"user": "<|user|>", "tool": "<|observation|>"}


@dataclass
class Node:
    """One generation of a forest. `number` is its commit order."""

    number: int
    parent: "Node | None"
    role: str
    text: str
    sampled: list[int]
    """Without the stop token."""
    finish: str
    counters: tuple[int, int, int]
    """Accepted, drafted, verify steps."""
    cached: int
    record: Record = field(init=False)

    @property
    def path(self) -> "list[Node]":
        return [*self.parent.path, self] if self.parent else [self]

    @property
    def output(self) -> list[int]:
        return list(self.record.output_ids)


@dataclass
class Forest:
    """Nodes in commit order under one tokenizer family."""

    tokenizer: ByteTokenizer
    nodes: list[Node] = field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        return [node.record for node in self.nodes]

    @property
    def leaves(self) -> list[Node]:
        parents = {id(node.parent) for node in self.nodes}
        return [node for node in self.nodes if id(node) not in parents]

    def grow(
        self,
        parent: Node | None = None,
        *,
        role: str = "user",
        text: str | None = None,
        sampled: int = 3,
        finish: str = "stop",
        counters: tuple[int, int, int] = (2, 6, 2),
        cached: int = 0,
        twins: frozenset[int] = frozenset(),
        meta_info: dict[str, Any] | None = None,
    ) -> Node:
        """Add a generation that asks `text` as `role` after `parent`'s reply."""
        number = len(self.nodes)
        ids = [FIRST_PIECE + (number * 17 + n * 5) % 200 for n in range(sampled)]
        node = Node(number, parent, role, text or f"q{number}", ids, finish, counters, cached)
        node.record = self._record(node, twins, meta_info or {})
        self.nodes.append(node)
        return node

    def _record(self, node: Node, twins: frozenset[int], extra: dict[str, Any]) -> Record:
        stops = {"stop": [self.tokenizer.text_stop_id], "tool_calls": [self.tokenizer.call_stop_id]}
        output = [*node.sampled, *stops.get(node.finish, [])]
        asked = {"role": node.role, "content": node.text}
        if node.parent is None:
            before: list[Any] = []
            prompt = self.tokenizer.render([asked])
        else:
            last = node.parent.record
            before = [*last.request_messages, last.message]
            prompt = self.tokenizer.extend([*last.prompt_ids, *last.output_ids], [asked])
        accepted, drafted, steps = node.counters
        return Record(
            seq=node.number,
            parent=None if node.parent is None else node.parent.number,
            prompt_ids=tuple(prompt),
            output_ids=tuple(output),
            log_probs=tuple(-(node.number + 1) - n / 1000 for n in range(len(output))),
            finish_reason=node.finish,
            response_id=f"{node.number:032x}",
            meta_info={
                "prompt_tokens": len(prompt),
                "completion_tokens": len(output),
                "cached_tokens": node.cached,
                "weight_version": str(node.number),
                "spec_verify_ct": steps,
                "spec_num_correct_drafts": accepted,
                "spec_num_proposed_drafts": drafted,
                **extra,
            },
            request_messages=[*before, asked],
            message={"role": "assistant", "content": self.tokenizer.decode(node.sampled)},
            concurrent_with=twins,
        )

    def kept(self, path: list[Node]) -> list[list[int]]:
        """Sampled ids of each node on `path` that the rest of the path repeats: all, or all but the stop token."""
        kept = []
        for node, following in zip(path, [*path[1:], None], strict=True):
            output = node.output
            stops = len(output) > len(node.sampled)
            if following is not None and stops and self.tokenizer.family.name == "delimiter":
                opener = self.tokenizer.special_ids[OPENERS[following.role]]
                output = output if output[-1] == opener else output[:-1]
            kept.append(output)
        return kept

    def ids(self, path: list[Node]) -> list[tuple[int, float, Node | None]]:
        """(id, logprob, node that sampled it or None) of the whole path, cut nowhere."""
        rows: list[tuple[int, float, Node | None]] = []
        for node, output in zip(path, self.kept(path), strict=True):
            rows += [(token, 0.0, None) for token in node.record.prompt_ids[len(rows) :]]
            rows += [(token, node.record.log_probs[n], node) for n, token in enumerate(output)]
        return rows

    def usable(self, path: list[Node]) -> list[Node]:
        """The path up to the first generation that ended early."""
        for number, node in enumerate(path):
            if node.finish in ("length", "abort"):
                return path[: number + 1]
        return path


def grow_forest(draw: Callable[[Any], Any], *, finishes: tuple[str, ...] = FINISHES, linear: bool = False) -> Forest:
    """A forest of up to nine generations."""
    forest = Forest(ByteTokenizer(draw(st.sampled_from(["chatml", "delimiter"]))))
    for number in range(draw(st.integers(1, 9))):
        open_ends: list[Node | None] = [node for node in forest.nodes if node.finish != "length"]
        if linear:
            if forest.nodes and forest.nodes[-1] not in open_ends:
                break
            parent = forest.nodes[-1] if forest.nodes else None
        else:
            parent = draw(st.sampled_from([None, *open_ends]))
        steps = draw(st.integers(0, 4))
        drafted = steps * 3
        forest.grow(
            parent,
            role="user" if parent is None else draw(st.sampled_from(["user", "tool"])),
            text=draw(st.sampled_from(["again", f"new {number}"])),
            sampled=draw(st.integers(0, 5)),
            finish=draw(st.sampled_from(finishes)),
            counters=(draw(st.integers(0, drafted)), drafted, steps),
            cached=draw(st.integers(0, 5)),
            twins=frozenset(draw(st.sets(st.integers(0, max(number - 1, 0)), max_size=1))) if number else frozenset(),
        )
    return forest


@pytest.fixture(scope="session")
def forests() -> Callable[..., Forest]:
    """`forests(data.draw, …)`: a random forest."""
    return grow_forest


@pytest.fixture
def forest() -> Forest:
    """An empty forest, to be grown by hand."""
    return Forest(ByteTokenizer("chatml"))


@pytest.fixture
def delimited() -> Forest:
    """The same in the family whose stop tokens open the next message."""
    return Forest(ByteTokenizer("delimiter"))


@pytest.fixture(scope="session")
def settings() -> RolloutSettings:
    return RolloutSettings(speculative_algorithm="EAGLE")


@pytest.fixture(scope="session")
def v1(settings: RolloutSettings) -> RolloutSettings:
    return replace(settings, session="v1")
