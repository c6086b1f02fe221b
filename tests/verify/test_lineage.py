"""Lineage: paths, leaves, and what was asked again."""

from miles_sim.ledger import Fired, Generation, Turn
from miles_sim.verify.lineage import Lineage, lineage, questions


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


def turn(step: str, *, answered: str | None, kind: str = "say", retry_of: str | None = None) -> Turn:
    status = 0 if answered is None else 200
    return Turn(
        rollout=0,
        step=step,
        kind=kind,
        parent=None,
        retry_of=retry_of,
        status=status,
        response_id=answered,
        finish_reason="stop",
    )


def generation(name: str, attempt: int, prompt: tuple[int, ...] = (1,)) -> Generation:
    return Generation(
        id=name,
        endpoint="chat",
        attempt=attempt,
        prompt_ids=prompt,
        output_ids=(),
        logprobs=(),
        finish_reason={"type": "stop"},
        cached_tokens=0,
        weight_version="default",
        spec=None,
    )


def with_lost(*turns: Turn, generations: list[Generation], lost: str = "lost", present: str = "lost") -> Lineage:
    """Step 1 was struck, and the reply `lost` came to nobody."""
    fired = Fired(fault=0, kind="consumer-timeout", rollout=0, step="1", attempt=0, lost=(lost,))
    return lineage(turns, generations, lost=[fired], present={present})


def test_a_lost_reply_to_what_was_asked_again_is_dropped() -> None:
    found = with_lost(turn("1", answered="own"), generations=[generation("lost", 0), generation("own", 1)])
    assert steps(found.leaves) == ["1"]
    assert steps(found.dropped) == ["1^0.1"]


def test_a_lost_reply_to_a_retry_supersedes_what_its_client_was_given_before() -> None:
    turns = (turn("1", answered="own"), turn("2", answered=None, kind="retry", retry_of="1"))
    found = with_lost(*turns, generations=[generation("own", 0), generation("lost", 1)])
    assert steps(found.leaves) == ["1^0.1"]
    assert steps(found.dropped) == ["1"]
    assert not found.by_step["1^0.1"].told


def test_a_lost_reply_that_no_sample_holds_was_not_recorded_and_supersedes_nothing() -> None:
    turns = (turn("1", answered="own"), turn("2", answered=None, kind="retry", retry_of="1"))
    found = with_lost(*turns, generations=[generation("own", 0), generation("lost", 1)], present="own")
    assert steps(found.nodes) == steps(found.leaves) == ["1"]


def test_a_lost_reply_to_another_question_of_the_step_is_nobodys_retry() -> None:
    turns = (turn("1~1", answered=None, kind="earlier"), turn("1", answered="own"))
    other = [generation("lost", 0, prompt=(2,)), generation("own", 1)]
    assert steps(with_lost(*turns, generations=other).leaves) == ["1", "1^0.1"]
    same = [generation("lost", 0), generation("own", 1)]
    assert steps(with_lost(*turns, generations=same).leaves) == ["1"]
    alone = [generation("lost", 0, prompt=(2,)), generation("own", 1)]
    assert steps(with_lost(turns[1], generations=alone).leaves) == ["1"]


def test_of_two_that_ask_the_same_at_once_neither_asks_the_other_again() -> None:
    turns = (turn("1", answered="own"), turn("1~1", answered=None, kind="extra"))
    for order in ((0, 1), (1, 0)):
        both = [generation("lost", order[0]), generation("own", order[1])]
        assert steps(with_lost(*turns, generations=both).leaves) == ["1", "1^0.1"]
    later = turn("2", answered="again", kind="retry", retry_of="1")
    three = [generation("lost", 0), generation("own", 1), generation("again", 2)]
    assert steps(with_lost(*turns, later, generations=three).leaves) == ["2"]


def test_what_is_asked_again_and_again_is_one_question() -> None:
    asked = (
        turn("1", answered="a"),
        turn("1~1", answered="b", kind="extra"),
        turn("2", answered="c", retry_of="1"),
        turn("3", answered="d", retry_of="2"),
        turn("4", answered="e"),
    )
    assert questions(asked) == {"1": "1", "1~1": "1", "2": "1", "3": "1", "4": "4"}
