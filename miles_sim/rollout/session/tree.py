"""A tree session (v2): every request finds the deepest stored history it begins with, and grows a branch there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from miles_sim.rollout.errors import NodeLimitError
from miles_sim.rollout.record import Record
from miles_sim.rollout.session.chat import ChatRequest
from miles_sim.rollout.session.completion import Completion
from miles_sim.rollout.session.conversation import Commit, Position, place, record
from miles_sim.rollout.session.matching import Matcher, tools_key
from miles_sim.rollout.session.paths import Paths, Spot, paths
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ChatTokenizer


@dataclass(eq=False)
class _Node:
    """One generation. `twins`: siblings whose requests were under way together with this one's."""

    commit: Commit
    spot: Spot
    children: list[int] = field(default_factory=list)
    twins: set[int] = field(default_factory=set)


class TreeConversation:
    """Generations as a forest. Nothing is ever taken back, and any number of requests may be under way."""

    def __init__(self, settings: RolloutSettings, tokenizer: ChatTokenizer, matcher: Matcher) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        self._matcher = matcher
        self._nodes: list[_Node] = []
        self._roots: list[int] = []
        self._paths: dict[bytes, Paths] = {}
        self._under_way: set[Position] = set()

    def position(self, asked: ChatRequest, *, requested_at: float) -> Position:
        """Behind the deepest node whose whole history the request begins with, of equals the latest; else a root."""
        held = len(self._nodes) + len(self._under_way)
        if held >= self._settings.max_nodes:
            raise NodeLimitError(
                f"max_nodes: the session holds {len(self._nodes)} generations and {len(self._under_way)} requests "
                f"under way, of {self._settings.max_nodes} at most; is history replayed as it was?"
            )
        spot = self._paths_of(asked.tools).find(asked.messages)
        base = None if spot is None or spot.ends is None else self._nodes[spot.ends].commit.record
        position = place(
            asked,
            base,
            settings=self._settings,
            tokenizer=self._tokenizer,
            commits=len(self._nodes),
            requested_at=requested_at,
        )
        self._under_way.add(position)
        return position

    def commit(self, position: Position, request: Mapping[str, Any], completion: Completion, *, at: float) -> Record:
        """A new node under the base that the request was positioned at."""
        seq = len(self._nodes)
        made = record(position, completion, seq=seq, committed_at=at)
        base = None if position.base is None else self._nodes[position.base.seq]
        known = self._paths_of(position.tools)
        start = known.root if base is None else base.spot
        siblings = self._roots if base is None else base.children
        node = _Node(
            commit=Commit(record=made, request=request, response=completion.response),
            spot=known.add(start, (*position.messages[start.depth :], made.message), seq),
        )
        self._nodes.append(node)
        self._mark_twins(node, siblings, since=position.commits)
        siblings.append(seq)
        return made

    def release(self, position: Position) -> None:
        self._under_way.discard(position)

    def commits(self) -> Sequence[Commit]:
        return tuple(_marked(node) for node in self._nodes)

    def _paths_of(self, tools: Sequence[Mapping[str, Any]] | None) -> Paths:
        """Histories that a request with these tools may continue: all, or those whose prompt has the same tools."""
        key = tools_key(tools) if self._settings.tools_change == "branch" else b""
        if key not in self._paths:
            self._paths[key] = paths(self._matcher)
        return self._paths[key]

    def _mark_twins(self, node: _Node, siblings: Sequence[int], *, since: int) -> None:
        """Siblings committed since the request was positioned ran beside it."""
        for elder in reversed(siblings):
            if elder < since:
                break
            node.twins.add(elder)
            self._nodes[elder].twins.add(node.commit.record.seq)


def _marked(node: _Node) -> Commit:
    if not node.twins:
        return node.commit
    return replace(node.commit, record=replace(node.commit.record, concurrent_with=frozenset(node.twins)))
