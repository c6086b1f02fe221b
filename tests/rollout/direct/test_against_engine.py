"""Direct rollouts against the simulated engine, judged by its own ledger, on the wire of every release."""

from typing import Any

import httpx
import pytest

from miles_sim.engine import profiles
from miles_sim.engine.engine import Engine
from miles_sim.engine.settings import EngineSettings
from miles_sim.rollout.direct.generate import DirectInput, generate_direct
from miles_sim.rollout.direct.prefill import score
from miles_sim.rollout.errors import UpstreamResponseError
from miles_sim.rollout.metrics import pooled_counters
from miles_sim.rollout.sample import Sample, Status
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.transport import LocalNetwork

CALL = {"name": "times", "arguments": {"a": 6, "b": 7}}
# Prompts are searched whole, so what is asked last stands first.
RULES: list[dict[str, Any]] = [
    {"contains": "assistant\nforty", "reply": {"text": "-two"}},
    {"contains": "42", "reply": {"text": "forty-two"}},
    {"contains": "please", "reply": {"text": "so\n", "tool_calls": [CALL]}},
]
PROFILES = profiles.names()


def make(**settings: Any) -> Engine:
    return Engine(EngineSettings.model_validate({"speculative": {}, "rules": RULES, **settings}), seed=3)


async def run(engine: Engine, sample: Sample | None = None, *, scored: bool = False, **fields: Any) -> Sample:
    network = LocalNetwork()
    network.mount("engine", engine.app)
    settings = RolloutSettings(speculative_algorithm="EAGLE")
    prompt = [{"role": "user", "content": "please multiply"}]
    async with httpx.AsyncClient(transport=network) as client:
        values: dict[str, Any] = {
            "settings": settings,
            "sample": sample if sample is not None else Sample(index=0, prompt=prompt),
            "sampling_params": {"max_new_tokens": 200, "sampling_seed": 1},
            "tokenizer": engine.tokenizer,
            "engine_url": "http://engine",
            "client": client,
        }
        made = await generate_direct(DirectInput(**{**values, **fields}))
        if scored:
            made = await score(made, settings=settings, sampling_params={}, engine_url="http://engine", client=client)
    assert engine.requests_open == 0
    return made


def check(sample: Sample, engine: Engine) -> None:
    """All that the sample says is what the ledger holds."""
    generations = engine.generations
    sample.validate()
    at = len(sample.tokens) - sample.response_length
    trained = [n + at for n, bit in enumerate(sample.loss_mask or []) if bit]
    said = [(token, logprob) for g in generations for token, logprob in zip(g.output_ids, g.logprobs, strict=True)]
    log_probs = sample.rollout_log_probs or []
    kept = [(sample.tokens[n], log_probs[n - at]) for n in trained]
    trimmed = engine.tokenizer.max_trim_tokens * (len(generations) - 1)
    assert len(said) - trimmed <= len(kept) <= len(said)
    assert kept == said or trimmed
    assert kept[-1] == said[-1]
    for generation in generations:
        asked = generation.prompt_ids
        assert tuple(sample.tokens[: len(asked)]) == asked
    spec, prefix = pooled_counters([sample])
    assert (spec, prefix) == (sample.spec_info, sample.prefix_cache_info)
    assert prefix.total_prompt_tokens == sum(len(g.prompt_ids) for g in generations)
    assert prefix.cached_tokens == sum(g.cached_tokens for g in generations)
    assert spec.completion_token_num == len(said)
    assert spec.spec_verify_ct == sum(g.spec.verify_ct for g in generations if g.spec)
    assert spec.spec_draft_token_num == sum(g.spec.drafted for g in generations if g.spec)
    assert spec.spec_accept_token_num == sum(g.spec.accepted for g in generations if g.spec)
    assert sample.weight_versions == [g.weight_version for g in generations]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("tooled", [False, True])
async def test_a_rollout_is_true_to_the_ledger(profile: str, tooled: bool, tools: Any) -> None:
    engine = make(profile=profile)
    sample = await run(engine, tools=tools() if tooled else None)
    assert len(engine.generations) == 1 + tooled
    assert sample.status is Status.COMPLETED
    assert sample.response.endswith("forty-two" if tooled else "</tool_call>")
    check(sample, engine)


@pytest.mark.parametrize("family", ["delimiter", "qwen3"])
async def test_families_with_other_boundaries_are_true_to_the_ledger(family: str, tools: Any) -> None:
    engine = make(tokenizer=family)
    sample = await run(engine, tools=tools())
    assert len(engine.generations) == 2
    check(sample, engine)


@pytest.mark.parametrize("profile", PROFILES)
async def test_an_aborted_rollout_goes_on(profile: str, tools: Any) -> None:
    aborting = {"contains": "42", "reply": {"text": "forty-two", "abort_after": 5}}
    rules = [RULES[0], aborting, RULES[2]]
    engine = make(profile=profile, rules=rules)
    broken = await run(engine, tools=tools())
    assert (broken.status, broken.response[-3:]) == (Status.ABORTED, "rty")
    check(broken, engine)
    sample = await run(engine, broken, tools=tools())
    assert (sample.status, sample.response[-9:]) == (Status.COMPLETED, "forty-two")
    check(sample, engine)


async def test_every_cap_gives_a_sample_that_fits(tools: Any) -> None:
    whole = await run(make(), tools=tools())
    for limit in range(40, len(whole.tokens) + 2, 3):
        engine = make()
        settings = RolloutSettings(speculative_algorithm="EAGLE", max_seq_len=limit)
        sample = await run(engine, tools=tools(), settings=settings)
        assert len(sample.tokens) <= limit
        assert sample.tokens == whole.tokens[: len(sample.tokens)]
        # A reply that ends on its last allowed id is cut for the engine: its length limit goes before the stop token.
        assert (sample.status is Status.TRUNCATED) == (limit <= len(whole.tokens))
        if engine.generations:
            check(sample, engine)


async def test_rows_of_experts_are_those_of_the_engine(tools: Any) -> None:
    engine = make(experts={"layers": 3})
    settings = RolloutSettings(speculative_algorithm="EAGLE", routing_replay=True, routed_experts_layers=3)
    sample = await run(engine, tools=tools(), settings=settings)
    check(sample, engine)
    assert sample.rollout_routed_experts is not None
    assert sample.rollout_routed_experts.shape[:2] == (len(sample.tokens) - 1, 3)


async def test_prefill_scores_what_was_sampled(tools: Any) -> None:
    engine = make()
    plain = await run(make(), tools=tools())
    sample = await run(engine, tools=tools(), scored=True)
    assert sample.tokens == plain.tokens
    for value, bit in zip(sample.rollout_log_probs or [], sample.loss_mask or [], strict=True):
        assert value < 0 if bit else value == 0.0
    *_, scoring = engine.generations
    assert scoring.output_ids == ()
    assert scoring.cached_tokens >= len(sample.tokens) - sample.response_length - 1 > 0


async def test_what_the_engine_refuses_is_told(tools: Any) -> None:

    with pytest.raises(UpstreamResponseError, match="engine: status 400"):
        await run(make(context_length=32), tools=tools())
