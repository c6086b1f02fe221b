"""The ledger finds a rollout's turns and generations, in the order in which they stand."""

from miles_sim.ledger import Generation, Ledger, Turn


def generation(name: str) -> Generation:
    return Generation(
        id=name,
        endpoint="chat",
        attempt=0,
        prompt_ids=(1,),
        output_ids=(2,),
        logprobs=(-0.5,),
        finish_reason={"type": "stop", "matched": 2},
        cached_tokens=0,
        weight_version="default",
        spec=None,
    )


def turn(rollout: int, step: str, answered: str | None) -> Turn:
    return Turn(
        rollout=rollout,
        step=step,
        kind="say",
        parent=None,
        retry_of=None,
        status=200 if answered else 500,
        response_id=answered,
        finish_reason=None,
    )


LEDGER = Ledger(
    generations=tuple(generation(name) for name in ("a", "b", "c", "lost")),
    turns=(turn(0, "1", "a"), turn(1, "1", "c"), turn(0, "2", None), turn(0, "3", "b")),
)


def test_a_generation_is_found_by_its_id() -> None:
    assert LEDGER.generation("b") == generation("b")
    assert LEDGER.generation("d") is None


def test_turns_are_those_of_the_rollout_failed_ones_included() -> None:
    assert [turn.step for turn in LEDGER.turns_of(0)] == ["1", "2", "3"]
    assert LEDGER.turns_of(2) == ()


def test_generations_are_those_that_the_rollouts_agent_was_answered_with() -> None:
    assert [g.id for g in LEDGER.generations_of(0)] == ["a", "b"]
    assert [g.id for g in LEDGER.generations_of(1)] == ["c"]
