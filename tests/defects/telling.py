"""What is told of a rollout beside its samples: metrics, the adapter that was asked, how the agent ended."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from starlette.responses import Response

from miles_sim.rollout import generate, metrics_time, train_data
from miles_sim.rollout.direct import generate as direct
from miles_sim.rollout.sample import Sample
from miles_sim.rollout.session import answer, server
from miles_sim.rollout.session.chat import ChatRequest
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.targets import reference_batch

from .defect import defect


@defect("tool-time/v1", "metrics/sane")
def tool_time_is_taken_off_whatever_is_left(m: pytest.MonkeyPatch) -> None:
    """miles: throughput without tool time divides by rollout time less tool time, which may be negative."""
    whole = reference_batch.throughput

    def unguarded(samples: Sequence[Sample], seconds: float, **gpus: Any) -> dict[str, float]:
        idle = max(sample.non_generation_time for sample in samples)
        figure = max(sample.response_length for sample in samples) / (seconds - idle)
        return {**whole(samples, seconds, **gpus), "longest_sample_tokens_per_sec_without_non_generation": figure}

    m.setattr(reference_batch, "throughput", unguarded)


@defect("lora/v2", "engine/adapter-named")
def sessions_ask_for_the_base_model(m: pytest.MonkeyPatch) -> None:
    """miles before PR #2075: requests of a session name no adapter, so the base weights answer."""
    read = server.read_chat

    def unnamed(body: bytes, settings: RolloutSettings) -> ChatRequest:
        return read(body, replace(settings, lora_path=None))

    m.setattr(server, "read_chat", unnamed)


@defect("crash-after-two/v2", "status/agent-failure-told")
def an_agent_that_failed_passes_for_one_that_ended(m: pytest.MonkeyPatch) -> None:
    """miles: the exception is logged, and what was recorded so far is collected as if the agent had returned."""
    run = generate._run_agent

    async def untold(*arguments: Any) -> Any:
        return (await run(*arguments))[0], None

    m.setattr(generate, "_run_agent", untold)


@defect("linear/v2", "session/headers-once")
def headers_of_the_engine_stand_beside_the_servers(m: pytest.MonkeyPatch) -> None:
    """miles before PR #1828: what the engine's reply says of date and server is handed on beside the proxy's own."""
    add = answer._add

    def doubled(response: Response, *given: Any, **more: Any) -> None:
        add(response, *given, **more)
        response.raw_headers += [(b"date", b"Thu, 01 Jan 2026 00:00:00 GMT")] * 2

    m.setattr(answer, "_add", doubled)


@defect("aborted-first/v1", "train-data/columns")
def columns_are_the_first_rows(m: pytest.MonkeyPatch) -> None:
    """miles convert_samples_to_train_data: what the first row lacks is no column, whatever the others have."""
    optional = train_data._optional

    def gated(data: Any, name: str, samples: Sequence[Sample], *rest: Any) -> None:
        if getattr(samples[0], name) is not None:
            optional(data, name, samples, *rest)

    m.setattr(train_data, "_optional", gated)


@defect("throughput-leaves/v2", "metrics/throughput-true")
def observations_are_counted_as_trained(m: pytest.MonkeyPatch) -> None:
    """The figure of trainable ids a second is taken of response lengths, tool results and shared turns included."""
    whole = reference_batch.throughput

    def flattered(samples: Sequence[Sample], seconds: float, **gpus: Any) -> dict[str, float]:
        figures = whole(samples, seconds, **gpus)
        return {**figures, "effective_tokens_per_gpu_per_sec": figures["tokens_per_gpu_per_sec"]}

    m.setattr(reference_batch, "throughput", flattered)


@defect("throughput-leaves/v2", "metrics/throughput-true")
def what_leaves_share_was_generated_twice(m: pytest.MonkeyPatch) -> None:
    """Sampled ids are added up leaf by leaf."""
    own = metrics_time.generated
    m.setattr(metrics_time, "generated", lambda samples: sum(own([sample]) for sample in samples))


@defect("direct-tools/direct", "engine/prefix-left-reusable")
def logprobs_are_asked_for_from_the_first_id_on(m: pytest.MonkeyPatch) -> None:
    """miles before PR #656: each request wants logprobs of its whole prompt, which the engine so computes anew."""
    body = direct.generate_body
    m.setattr(direct, "generate_body", lambda *args, **named: {**body(*args, **named), "logprob_start_len": 0})
