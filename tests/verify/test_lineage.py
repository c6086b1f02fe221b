"""Lineage: paths, leaves, and what was asked again."""

from miles_sim.ledger import Generation, Turn
from miles_sim.verify.lineage import Lineage, lineage


def tree(*asked: tuple[str, str | None, str | None]) -> Lineage:
    """(step, parent, step that it asks again); a step that ends in `!` gets no answer."""
    turns = [
        Turn(
            rollout=0,
            step=step,
            kind="say",
            parent=parent,
            retry_of=retry_of,
            status=500 if step.endswith("!") else 200,
            response_id=None if step.endswith("!") else step,
            finish_reason="stop",
        )
        for step, parent, retry_of in asked
    ]
    generations = [
        Generation(
            id=step,
            endpoint="chat",
            attempt=0,
            prompt_ids=(),
            output_ids=(),
            logprobs=(),
            finish_reason={"type": "stop"},
            cached_tokens=0,
            weight_version="default",
            spec=None,
        )
        for step, _, _ in asked
    ]
    return lineage(turns, generations)


def steps(nodes: tuple[object, ...]) -> list[str]:
    return [node.step for node in nodes]  # type: ignore[attr-defined]


def test_paths_run_from_root_to_leaf() -> None:
    found = tree(("1", None, None), ("2", "1", None), ("3", "1", None))
    assert [steps(found.path(leaf)) for leaf in found.leaves] == [["1", "2"], ["1", "3"]]


def test_what_was_asked_again_is_dropped() -> None:
    found = tree(("1", None, None), ("2", None, "1"), ("3", None, "2"), ("4", "3", None))
    assert steps(found.leaves) == ["4"]
    assert steps(found.dropped) == ["1", "2"]


def test_what_was_asked_again_stays_where_another_path_stands_on_it() -> None:
    found = tree(("1", None, None), ("fork", "1", None), ("2", None, "1"))
    assert steps(found.leaves) == ["fork", "2"]
    assert steps(found.kept) == ["1", "fork", "2"]


def test_a_retry_without_an_answer_supersedes_nothing() -> None:
    found = tree(("1", None, None), ("2!", None, "1"))
    assert steps(found.leaves) == ["1"]
    assert steps(found.nodes) == ["1"]
