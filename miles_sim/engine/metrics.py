"""`/metrics`: the engine's counters under the release's Prometheus names, in the text exposition format."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from miles_sim.engine.load import load
from miles_sim.engine.statistics import Histogram

if TYPE_CHECKING:
    from miles_sim.engine.engine import Engine

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
_STREAMING = {
    "prompt_tokens_total",
    "generation_tokens_total",
    "num_requests_total",
    "time_to_first_token_seconds",
    "e2e_request_latency_seconds",
}
"""Metrics that newer releases split by streaming or not."""


def exposition(engine: "Engine") -> str:
    """All metrics that the release has and this engine can tell, each with its type."""
    release = engine.release
    gauges, counters, histograms = _gauges(engine), _counters(engine), _histograms(engine)
    lines: list[str] = []
    for name in release.metrics:
        labels = {"model_name": engine.settings.model}
        if release.metric_streaming and name in _STREAMING:
            labels["is_streaming"] = "False"
        if name in gauges:
            own = {"engine_type": "unified", "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
            lines += [f"# TYPE sglang:{name} gauge", _sample(name, labels | own, gauges[name])]
        elif name in counters:
            if release.metric_cache_source and name == "cached_tokens_total":
                labels["cache_source"] = "device"
            lines += [f"# TYPE sglang:{name} counter", _sample(name, labels, counters[name])]
        else:
            lines += [f"# TYPE sglang:{name} histogram", *_buckets(name, labels, histograms[name])]
    return "\n".join(lines) + "\n"


def _gauges(engine: "Engine") -> dict[str, float]:
    now, statistics, speculative = load(engine), engine.statistics, engine.settings.speculative
    return {
        "num_running_reqs": now["num_running_reqs"],
        "num_used_tokens": now["num_used_tokens"],
        "token_usage": now["token_usage"],
        "gen_throughput": now["gen_throughput"],
        "num_queue_reqs": now["num_waiting_reqs"],
        "cache_hit_rate": now["cache_hit_rate"],
        "max_total_num_tokens": now["max_total_num_tokens"],
        "spec_accept_length": statistics.accept_length,
        "spec_accept_rate": statistics.accept_rate,
        "spec_num_steps": speculative.draft_tokens - 1 if speculative else 0,
        "num_retracted_reqs": sum(bool(flight.retractions) for flight in engine.scheduler.waiting),
        "num_paused_reqs": 0,
        "utilization": now["utilization"],
    }


def _counters(engine: "Engine") -> dict[str, float]:
    statistics = engine.statistics
    return {
        "num_retracted_requests_total": statistics.retracted,
        "prompt_tokens_total": statistics.prompt_tokens,
        "generation_tokens_total": statistics.generated_tokens,
        "spec_verify_calls_total": statistics.verify_steps,
        "cached_tokens_total": statistics.cached_tokens,
        "num_requests_total": statistics.requests,
        "num_aborted_requests_total": statistics.aborted,
    }


def _histograms(engine: "Engine") -> dict[str, Histogram]:
    statistics = engine.statistics
    return {
        "queue_time_seconds": statistics.queue_time,
        "time_to_first_token_seconds": statistics.first_token,
        "inter_token_latency_seconds": statistics.between_tokens,
        "e2e_request_latency_seconds": statistics.latency,
    }


def _buckets(name: str, labels: dict[str, str], histogram: Histogram) -> Iterator[str]:
    counts = histogram.cumulative()
    for bound, count in zip((*map(float, histogram.bounds), "+Inf"), counts, strict=True):
        yield _sample(f"{name}_bucket", labels | {"le": str(bound)}, count)
    yield _sample(f"{name}_count", labels, counts[-1])
    yield _sample(f"{name}_sum", labels, histogram.sum)


def _sample(name: str, labels: dict[str, str], value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"sglang:{name}{{{shown}}} {float(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
