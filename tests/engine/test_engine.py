"""A reply is a pure function of the seed, what was asked, and how often before."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miles_sim.engine.engine import Engine
from miles_sim.engine.flight import at_once
from miles_sim.engine.settings import EngineSettings, Speculative
from miles_sim.transport import LocalNetwork

Make = Callable[..., Engine]
Ask = Callable[..., dict[str, Any]]
SETTINGS = EngineSettings(speculative=Speculative())


def body(text: str, **fields: Any) -> bytes:
    asked = {"messages": [{"role": "user", "content": text}], "logprobs": True, "return_meta_info": True, **fields}
    return json.dumps(asked).encode()


def conversation(engine: Engine, start: str, turns: int, seed: int) -> list[bytes]:
    """A client that keeps the ids, as a session server does."""
    ids = engine.tokenizer.render([{"role": "user", "content": start}])
    answers = []
    for turn in range(turns):
        answers.append(at_once(engine.chat(body(f"{start} {turn}", input_ids=ids, seed=seed))))
        triples = json.loads(answers[-1])["choices"][0]["meta_info"]["output_token_logprobs"]
        ids = engine.tokenizer.extend([*ids, *(t[1] for t in triples)], [{"role": "user", "content": f"more {turn}"}])
    return answers


requests = st.lists(
    st.builds(
        body,
        st.sampled_from(["a", "b", "tell me more"]),
        seed=st.none() | st.integers(0, 2),
        max_tokens=st.none() | st.integers(1, 30),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=30)
@given(asked=requests, data=st.data())
def test_any_order_gives_the_same_answers(asked: list[bytes], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(asked))))
    first, second = Engine(SETTINGS, seed=3), Engine(SETTINGS, seed=3)
    straight = [at_once(first.chat(one)) for one in asked]
    mixed = [at_once(second.chat(asked[n])) for n in order]
    assert sorted(straight) == sorted(mixed)


ALONE = [conversation(Engine(SETTINGS, seed=1), "hi", 3, seed) for seed in range(3)]


@settings(max_examples=20)
@given(st.permutations([0] * 3 + [1] * 3 + [2] * 3))
def test_conversations_that_interleave_get_what_they_would_get_alone(order: list[int]) -> None:
    engine = Engine(SETTINGS, seed=1)
    state = [engine.tokenizer.render([{"role": "user", "content": "hi"}]) for _ in range(3)]
    answers: list[list[bytes]] = [[], [], []]
    for who in order:
        turn = len(answers[who])
        answers[who].append(at_once(engine.chat(body(f"hi {turn}", input_ids=state[who], seed=who))))
        output = list(engine.generations[-1].output_ids)
        state[who] = engine.tokenizer.extend([*state[who], *output], [{"role": "user", "content": f"more {turn}"}])
    assert answers == ALONE


async def test_concurrent_requests_get_the_bytes_of_sequential_ones() -> None:
    asked = [body(f"question {n % 7}", seed=n) for n in range(40)]
    sequential = Engine(SETTINGS, seed=5)
    expected = [await sequential.chat(one) for one in asked]
    engine = Engine(SETTINGS, seed=5)
    network = LocalNetwork()
    network.mount("engine", engine.app)
    async with httpx.AsyncClient(transport=network, headers={"content-type": "application/json"}) as client:
        posts = [client.post("http://engine/v1/chat/completions", content=one) for one in reversed(asked)]
        answers = await asyncio.gather(*posts)
    assert [answer.content for answer in reversed(answers)] == expected
    assert engine.requests_open == 0


def test_a_seed_changes_everything_said(make_engine: Make, ask: Ask) -> None:
    a, b = (ask(make_engine(seed=seed)) for seed in (1, 2))
    assert a["id"] != b["id"]
    assert a["choices"][0]["message"]["content"] != b["choices"][0]["message"]["content"]


def test_the_very_same_thing_asked_again_is_another_attempt(make_engine: Make, ask: Ask) -> None:
    engine = make_engine()
    first, second = ask(engine), ask(engine, logprobs=False, return_meta_info=False, model="other")
    assert [g.attempt for g in engine.generations] == [0, 1]
    assert first["choices"][0]["message"] != second["choices"][0]["message"]


def test_another_seed_length_or_stop_asks_another_thing(make_engine: Make, ask: Ask) -> None:
    engine = make_engine()
    for fields in ({}, {"seed": 1}, {"max_tokens": 7}, {"stop": "x"}, {"stop_token_ids": [9]}, {"temperature": 0}):
        ask(engine, **fields)
    assert [g.attempt for g in engine.generations] == [0] * 6
    assert len({g.id for g in engine.generations}) == 6


def test_another_prompt_under_the_same_last_message_asks_another_thing(make_engine: Make, ask: Ask) -> None:
    engine = make_engine()
    a, b = ask(engine, input_ids=[5, 6]), ask(engine, input_ids=[5, 7])
    assert a["choices"][0]["message"] != b["choices"][0]["message"]
    assert [g.attempt for g in engine.generations] == [0, 0]


def test_rules_choose_the_reply_by_the_last_message(make_engine: Make, ask: Ask) -> None:
    rules = [
        {"contains": "[2]", "attempt": 1, "reply": {"text": "second try"}},
        {"contains": "[2]", "reply": {"text": "first try"}},
    ]
    engine = make_engine(rules=rules)
    said = [ask(engine, "go [2]")["choices"][0]["message"]["content"] for _ in range(2)]
    assert said == ["first try", "second try"]
    history = [{"role": "user", "content": "go [2]"}, {"role": "user", "content": "on"}]
    assert ask(engine, messages=history)["choices"][0]["message"]["content"] not in said


def test_speculation_and_cache_change_no_word(make_engine: Make, ask: Ask) -> None:
    plain = ask(make_engine(prefix_cache=False))["choices"][0]
    other = ask(make_engine(speculative={}))["choices"][0]
    assert plain["message"] == other["message"]
    assert plain["logprobs"] == other["logprobs"]


def test_a_conversation_finds_its_past_in_the_cache(make_engine: Make) -> None:
    engine = make_engine()
    conversation(engine, "hi", 3, seed=0)
    past = [len(g.prompt_ids) + len(g.output_ids) - 1 for g in engine.generations]
    assert [g.cached_tokens for g in engine.generations] == [0, *past[:-1]]


def test_without_a_prefix_cache_nothing_is_cached(make_engine: Make) -> None:
    engine = make_engine(prefix_cache=False)
    conversation(engine, "hi", 3, seed=0)
    assert [g.cached_tokens for g in engine.generations] == [0, 0, 0]


def test_cached_ids_save_time(make_engine: Make, ask: Ask) -> None:
    engine = make_engine()
    first, again = (ask(engine, "a long prompt " * 50, max_tokens=5)["choices"][0]["meta_info"] for _ in range(2))
    assert again["e2e_latency"] < first["e2e_latency"]
    assert first["response_sent_to_client_ts"] > first["e2e_latency"] > 0


def test_the_context_bounds_a_reply_that_no_one_else_bounds(make_engine: Make, ask: Ask) -> None:
    engine = make_engine(context_length=64, default_reply={"tokens": 500})
    ask(engine, input_ids=[7] * 40)
    generation = engine.generations[0]
    assert generation.finish_reason == {"type": "length", "length": 22}
    assert len(generation.output_ids) == 22


@pytest.mark.parametrize("family", ["chatml", "delimiter"])
def test_a_session_that_keeps_ids_sees_its_own_words_again(family: str) -> None:
    engine = Engine(EngineSettings(tokenizer=family), seed=2)
    conversation(engine, "hi", 3, seed=0)
    for before, after in zip(engine.generations, engine.generations[1:], strict=False):
        kept = (*before.prompt_ids, *before.output_ids)
        assert after.prompt_ids[: len(kept)] == kept


def test_a_refused_request_leaves_no_trace(make_engine: Make, ask: Ask) -> None:
    engine = make_engine(context_length=64)
    for fields in ({"regex": "("}, {"ebnf": "a"}, {"input_ids": [9_999]}, {"max_tokens": 100}, {"top_p": 0}):
        with pytest.raises(ValueError, match=r"."):
            ask(engine, **fields)
    assert engine.generations == []
    ask(engine)
    assert engine.generations[0].attempt == 0
