import pytest

from miles_sim.ledger import Turn
from miles_sim.report.tree import branches, branching, tree_lines
from miles_sim.verify.rule import Case


def _turn(step: str, parent: str | None) -> Turn:
    return Turn(
        rollout=0,
        step=step,
        kind="say",
        parent=parent,
        retry_of=None,
        status=200,
        response_id=None,
        finish_reason=None,
    )


def test_each_turn_stands_once_below_its_parent(case: Case) -> None:
    lines = tree_lines(case)
    assert [line.split("   ")[0].rstrip() for line in lines[:-1]] == [
        "rollout 0: index 7, rollout_id none, group 0",
        "├─ 1 say",
        "│  ├─ 2 say",
        "│  ├─ 2r retry",
        "│  └─ 3.1 subagent",
        "└─ 4 compact",
    ]
    assert lines[-1].split() == ["5", "say", "HTTP", "409"]


def test_a_line_tells_ids_finish_counters_and_what_it_supersedes(case: Case) -> None:
    elder, younger = (next(line for line in tree_lines(case) if f" {name} " in line) for name in ("2 say", "2r retry"))
    assert " 62→6 " in elder
    assert "superseded by 2r" in elder
    assert "asks 2 again" in younger
    assert "accepted 4/9 in 3" in younger
    assert "cached 36" in younger


def test_a_chain_of_any_length_is_drawn_flat() -> None:
    turns = [_turn("0", None), *(_turn(str(i), str(i - 1)) for i in range(1, 5_000))]
    (root,) = branches(turns)
    depth = 1
    while root.children:
        (root,) = root.children
        depth += 1
    assert depth == 5_000


def test_a_turn_whose_parent_was_never_asked_is_a_root() -> None:
    assert [branch.turn.step for branch in branches([_turn("1", None), _turn("2", "gone")])] == ["1", "2"]


def test_only_several_paths_count_as_branching(case: Case) -> None:
    assert branching(case)
    one = case.ledger.model_copy(update={"turns": case.ledger.turns[:1]})
    assert not branching(Case(case.scenario, case.session, one, case.observation))


@pytest.mark.parametrize("status", [0, 502])
def test_a_request_without_a_reply_says_why(case: Case, status: int) -> None:
    turn = case.ledger.turns[0].model_copy(update={"status": status, "response_id": None})
    broken = Case(case.scenario, case.session, case.ledger.model_copy(update={"turns": (turn,)}), case.observation)
    assert ("no answer" if status == 0 else "HTTP 502") in tree_lines(broken)[1]
