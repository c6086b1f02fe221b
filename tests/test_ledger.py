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


def turn(step: str, parent: str | None, *, retry_of: str | None = None, failed: bool = False) -> Turn:
    return Turn(
        rollout=0,
        step=step,
        kind="retry" if retry_of else "say",
        parent=parent,
        retry_of=retry_of,
        status=500 if failed else 200,
        response_id=None if failed else step,
        finish_reason=None,
    )


def kept(*turns: Turn) -> list[str]:
    ledger = Ledger(generations=tuple(generation(t.step) for t in turns if t.response_id), turns=turns)
    return [g.id for g in ledger.kept_of(0)]


def test_what_was_asked_beside_it_is_not_kept_either_where_it_asked_the_same() -> None:
    beside = turn("1~1", None).model_copy(update={"kind": "extra"})
    earlier = turn("1~2", None).model_copy(update={"kind": "earlier"})
    assert kept(turn("1", None), beside, earlier, turn("2", None, retry_of="1")) == ["1~2", "2"]


def test_what_was_asked_again_is_not_kept() -> None:
    assert kept(turn("1", None), turn("2", "1"), turn("3", "1", retry_of="2"), turn("4", "3")) == ["1", "3", "4"]


def test_of_several_retries_the_last_is_kept() -> None:
    assert kept(turn("1", None), turn("2", None, retry_of="1"), turn("3", None, retry_of="2")) == ["3"]


def test_a_retry_without_an_answer_supersedes_nothing() -> None:
    assert kept(turn("1", None), turn("2", None, retry_of="1", failed=True)) == ["1"]


def test_a_superseded_reply_that_a_fork_stands_on_is_kept() -> None:
    fork, late = turn("2.1", "1"), turn("3", None, retry_of="1")
    assert kept(turn("1", None), fork, late) == ["1", "2.1", "3"]


def test_retries_under_a_superseded_reply_are_judged_by_themselves() -> None:
    turns = (turn("1", None), turn("2.1", "1"), turn("2.2", "1", retry_of="2.1"), turn("3", None, retry_of="1"))
    assert kept(*turns) == ["1", "2.2", "3"]
