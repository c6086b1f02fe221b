"""A hand-made case: a retry, a subagent that forks after the main line went on, a compaction."""

import pytest

from miles_sim.ledger import Generation, Ledger, SpecTruth, Turn
from miles_sim.scenarios.model import Scenario
from miles_sim.targets.observation import (
    BatchView,
    Counters,
    Observation,
    PrefixCache,
    RolloutView,
    SampleView,
)
from miles_sim.tokenizer import ByteTokenizer
from miles_sim.verify.rule import Case

TOKENIZER = ByteTokenizer()


def generation(name: str, prompt: list[int], text: str, cached: int = 0) -> Generation:
    output = [*TOKENIZER.encode(text), TOKENIZER.text_stop_id]
    return Generation(
        id=name * 8,
        endpoint="chat",
        attempt=0,
        prompt_ids=tuple(prompt),
        output_ids=tuple(output),
        logprobs=tuple(-0.5 for _ in output),
        finish_reason={"type": "stop", "matched": TOKENIZER.text_stop_id},
        cached_tokens=cached,
        weight_version="default",
        spec=SpecTruth(accepted=4, drafted=9, verify_ct=3, histogram=(1, 0, 2)),
    )


def turn(step: str, kind: str, parent: str | None, response: str | None, **more: object) -> Turn:
    told = {"retry_of": None, "status": 200, "finish_reason": "stop"} | more
    return Turn.model_validate(
        {"rollout": 0, "step": step, "kind": kind, "parent": parent, "response_id": response, **told}
    )


def sample(path: list[Generation], **more: object) -> SampleView:
    last = path[-1]
    tokens = last.prompt_ids + last.output_ids
    start = len(path[0].prompt_ids)
    mask = [0] * (len(tokens) - start)
    for said in path:
        begin = len(said.prompt_ids) - start
        mask[begin : begin + len(said.output_ids)] = [1] * len(said.output_ids)
    return SampleView.model_validate(
        {
            "index": 7,
            "rollout_id": 7,
            "tokens": tokens,
            "response_length": len(mask),
            "loss_mask": tuple(mask),
            "rollout_log_probs": tuple(-0.5 for _ in mask),
            "weight_versions": ("default",) * len(path),
            "status": "completed",
            "spec_info": Counters(
                spec_accept_token_num=4 * len(path),
                spec_draft_token_num=9 * len(path),
                spec_verify_ct=3 * len(path),
                completion_token_num=sum(len(g.output_ids) for g in path),
                accept_rate=4 / 9,
                accept_length=sum(len(g.output_ids) for g in path) / (3 * len(path)),
            ),
            "prefix_cache_info": PrefixCache(
                cached_tokens=sum(g.cached_tokens for g in path),
                total_prompt_tokens=sum(len(g.prompt_ids) for g in path),
            ),
        }
        | more
    )


@pytest.fixture
def case() -> Case:
    first = generation("a", TOKENIZER.render([{"role": "user", "content": "do it [1]"}]), "doing it")
    said = [*first.prompt_ids, *first.output_ids]
    main = generation("b", TOKENIZER.extend(said, [{"role": "user", "content": "more [2]"}]), "wrong")
    again = generation("c", list(main.prompt_ids), "right", cached=len(said))
    fork = generation("d", TOKENIZER.extend(said, [{"role": "user", "content": "aside [3.1]"}]), "looked")
    fresh = generation("e", TOKENIZER.render([{"role": "user", "content": "so far [4]"}]), "on\nit goes")
    generations = (first, main, again, fork, fresh)
    scenario = Scenario.model_validate(
        {"name": "handmade", "title": "One of each", "engine": {"speculative": {}}, "plan": {}}
    )
    turns = (
        turn("1", "say", None, first.id),
        turn("2", "say", "1", main.id),
        turn("2r", "retry", "1", again.id, retry_of="2"),
        turn("3.1", "subagent", "1", fork.id),
        turn("4", "compact", None, fresh.id),
        turn("5", "say", "4", None, status=409, finish_reason=None),
    )
    given = SampleView(index=7)
    view = RolloutView(
        input=given,
        input_after=given,
        agent_ran=True,
        returned="list",
        samples=(sample([first, again]), sample([first, fork]), sample([fresh])),
    )
    batch = BatchView(
        train_data={"rollout_ids": [7, 7, 7], "tokens": [[1] * 50] * 3}, metrics={"spec_accept_rate": 0.444}
    )
    return Case(
        scenario=scenario,
        session="v2",
        ledger=Ledger(generations=generations, turns=turns),
        observation=Observation(session="v2", rollouts=(view,), batch=batch, sessions_open=0, requests_open=0),
    )
