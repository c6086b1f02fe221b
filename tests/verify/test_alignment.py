"""Alignment: the generations of a sample are found by ids alone."""

from hypothesis import given
from hypothesis import strategies as st

from miles_sim.ledger import Generation
from miles_sim.verify.alignment import align, shared

Ids = tuple[int, ...]
ids = st.lists(st.integers(0, 2), max_size=4).map(tuple)
some_ids = st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple)
turns = st.lists(st.tuples(some_ids, some_ids), min_size=1, max_size=5)
"""(what is said, what is replied) of each turn; few distinct ids, so that chance matches abound."""


def generation(prompt: Ids, output: Ids, id: str = "g") -> Generation:
    return Generation(
        id=id,
        endpoint="chat",
        attempt=0,
        prompt_ids=prompt,
        output_ids=output,
        logprobs=(0.0,) * len(output),
        finish_reason={"type": "stop"},
        cached_tokens=0,
        weight_version="default",
        spec=None,
    )


def chain(said: list[tuple[Ids, Ids]], trim: int = 0) -> list[Generation]:
    """Generations of one conversation; of each reply but the last, `trim` ids at its end give way."""
    made: list[Generation] = []
    before: Ids = ()
    for number, (prompt, output) in enumerate(said):
        made.append(generation(before + prompt, output, str(number)))
        before += prompt + output[: len(output) - trim]
    return made


def spans(tokens: Ids, response: int, made: list[Generation], max_trim: int = 0) -> list[tuple[int, int, str]]:
    found = align(tokens, response, made, max_trim=max_trim)
    return [(span.start, span.end, span.generation.id) for span in found.spans]


@given(turns)
def test_each_turn_of_a_conversation_is_found_whole(said: list[tuple[Ids, Ids]]) -> None:
    made = chain(said)
    tokens = made[-1].prompt_ids + made[-1].output_ids
    found = align(tokens, len(tokens) - len(said[0][0]), made, max_trim=0)
    assert [span.generation for span in found.spans] == made
    assert all(span.whole for span in found.spans)
    assert found.end == len(tokens)


@given(turns, ids)
def test_said_and_unsaid_ids_are_the_whole_response(said: list[tuple[Ids, Ids]], tail: Ids) -> None:
    made = chain(said)
    tokens = made[-1].prompt_ids + made[-1].output_ids + tail
    found = align(tokens, len(tokens) - len(said[0][0]), made, max_trim=0)
    covered = {at for span in found.spans for at in range(span.start, span.end)}
    assert sorted(covered | set(found.unsaid())) == list(range(found.response_start, len(tokens)))
    assert not covered & set(found.unsaid())


@given(turns, st.integers(1, 20))
def test_a_cut_shortens_the_last_turn_and_loses_no_earlier_one(said: list[tuple[Ids, Ids]], length: int) -> None:
    made = chain(said)
    tokens = (made[-1].prompt_ids + made[-1].output_ids)[:length]
    found = align(tokens, len(tokens), made, max_trim=0)
    reached = [g.id for g in made if len(g.prompt_ids) < len(tokens)]
    assert [span.generation.id for span in found.spans] == reached
    assert all(span.whole for span in found.spans[:-1])


def test_a_stop_token_that_gave_way_is_missing_from_its_span() -> None:
    made = chain([((1,), (5, 9)), ((6, 7), (8,))], trim=1)
    assert spans((1, 5, 6, 7, 8), 4, made, max_trim=1) == [(1, 2, "0"), (4, 5, "1")]
    assert spans((1, 5, 6, 7, 8), 4, made) == [(4, 5, "1")], "no id may give way in this family"


def test_of_two_answers_to_one_request_the_longest_match_wins() -> None:
    elder, retry = generation((1,), (5, 6), "elder"), generation((1,), (5, 7), "retry")
    assert spans((1, 5, 7), 2, [elder, retry], max_trim=1) == [(1, 3, "retry")]
    assert spans((1, 5, 6), 2, [elder, retry], max_trim=1) == [(1, 3, "elder")]


def test_of_two_equal_answers_the_later_one_is_taken() -> None:
    assert spans((1, 5), 1, [generation((1,), (5,), "elder"), generation((1,), (5,), "retry")]) == [(1, 2, "retry")]


def test_an_empty_reply_is_a_span_of_its_own() -> None:
    assert spans((1, 2), 1, [generation((1,), (), "empty"), generation((1, 2), (), "last")]) == [
        (1, 1, "empty"),
        (2, 2, "last"),
    ]


def test_a_prompt_that_ends_the_sample_is_no_turn_of_it() -> None:
    assert spans((1, 5, 6), 2, chain([((1,), (5,)), ((6,), (7,))])) == [(1, 2, "0")]


def test_shared_is_the_common_prefix() -> None:
    assert [shared((), (1,)), shared((1, 2), (1, 2)), shared((1, 2), (1, 3)), shared((1,), (1, 3))] == [0, 2, 1, 1]
