"""Microseconds to find a request's place in a session's tree, and to tokenise it there, by the tree's size."""

from dataclasses import asdict, dataclass
from typing import Any

from miles_sim.bench.beside import Miles
from miles_sim.bench.miles_side import attach_request, best, turn_messages
from miles_sim.rollout.session.chat import ChatRequest
from miles_sim.rollout.session.completion import Completion
from miles_sim.rollout.session.matching import resolve
from miles_sim.rollout.session.tree import TreeConversation
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ByteTokenizer

NODES = (16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Point:
    """One size of the tree."""

    nodes: int
    microseconds: float


@dataclass(frozen=True)
class AttachBench:
    """A tree is a root with children. The request has five messages, the fourth of them said by a child midway."""

    points: list[Point]
    ratio_1024_16: float
    miles_points: list[Point] | None = None
    """miles' search for the place alone; None where it was not measured, or has no tree sessions."""

    def document(self) -> dict[str, Any]:
        return asdict(self)


def measure(*, seconds: float, miles: Miles | None) -> AttachBench:
    """`seconds`: measured for each point."""
    ours = [_point(nodes, _seconds(nodes, seconds)) for nodes in NODES]
    theirs = None if miles is None else miles.measured("attach", nodes=NODES, seconds=seconds)
    beside = None if theirs is None else [_point(n, found) for n, found in zip(NODES, theirs, strict=True)]
    return AttachBench(ours, round(ours[-1].microseconds / ours[0].microseconds, 3), beside)


def _point(nodes: int, seconds: float) -> Point:
    return Point(nodes, round(seconds * 1e6, 2))


def _seconds(nodes: int, seconds: float) -> float:
    tree = planted(nodes)
    asked = _asked(attach_request(nodes))

    def attach() -> None:
        tree.release(tree.position(asked, requested_at=0.0))

    return best(attach, seconds=seconds)


def planted(nodes: int) -> TreeConversation:
    """A root and its children, `nodes` in all."""
    settings = RolloutSettings(max_nodes=nodes + 1)
    tokenizer = ByteTokenizer("chatml")
    tree = TreeConversation(settings, tokenizer, resolve(settings.message_matcher))
    root: list[dict[str, Any]] = []
    for number in range(nodes):
        asked, said = turn_messages(number)
        position = tree.position(_asked([*root, asked]), requested_at=0.0)
        output = [*tokenizer.encode(said["content"]), tokenizer.text_stop_id]
        completion = Completion(
            response={},
            response_id=str(number),
            message=said,
            finish_reason="stop",
            meta_info={},
            output_ids=output,
            log_probs=[-0.5] * len(output),
        )
        tree.commit(position, {}, completion, at=0.0)
        tree.release(position)
        root = root or [asked, said]
    return tree


def _asked(messages: list[dict[str, Any]]) -> ChatRequest:
    return ChatRequest(messages=messages, tools=None, template_options={}, stream=False, fields={})
