"""`/metrics`: the engine's counters under the release's Prometheus names, in the text exposition format."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from miles_sim.engine.load import load
from miles_sim.engine.metric_names import Metric, metrics_of
from miles_sim.engine.statistics import Histogram, Statistics

if TYPE_CHECKING:
    from miles_sim.engine.engine import Engine

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
_SCHEDULER = {"engine_type": "unified", "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
_CACHED = {"cache_source": "device"}
_STREAMING = "is_streaming"


def exposition(engine: "Engine") -> str:
    """All metrics that the release has and this engine can tell, each with help and type.

    A counter or histogram is not there before it has counted, as in the files that SGLang's processes share.
    """
    gauges, lines = _gauges(engine), list[str]()
    for metric in metrics_of(engine.settings.profile):
        labels = {"model_name": engine.settings.model}
        if metric.scope == "scheduler":
            labels |= _SCHEDULER
        labels |= {name: _CACHED[name] for name in metric.labels if name != _STREAMING}
        samples: list[str] = []
        if metric.type == "gauge":
            samples += _value(metric, labels, gauges.get(metric.name, 0.0))
        elif _STREAMING in metric.labels:
            for streamed, statistics in engine.by_streaming.items():
                samples += _counted(metric, labels | {_STREAMING: str(streamed).lower()}, statistics)
        else:
            samples += _counted(metric, labels, engine.statistics)
        if samples:
            lines += [f"# HELP sglang:{metric.name} {_help(metric.help)}", f"# TYPE sglang:{metric.name} {metric.type}"]
            lines += samples
    return "\n".join(lines) + "\n"


def _counted(metric: Metric, labels: dict[str, str], statistics: Statistics) -> Iterable[str]:
    if metric.type == "histogram":
        return _buckets(metric, labels, _histograms(statistics)[metric.name])
    return _value(metric, labels, _counters(statistics)[metric.name])


def _value(metric: Metric, labels: dict[str, str], value: float) -> list[str]:
    return [_sample(metric.name, labels, value)] if value or metric.type == "gauge" else []


def _gauges(engine: "Engine") -> dict[str, float]:
    """Those that are not zero by nature in a server without disaggregation, sliding windows and state-space layers."""
    now, statistics, speculative = load(engine), engine.statistics, engine.settings.speculative
    used, capacity = now["num_used_tokens"], engine.max_total_tokens
    kept = min(engine.prefix_cache.size, capacity - used)
    return {
        "num_running_reqs": now["num_running_reqs"],
        "num_used_tokens": used,
        "token_usage": now["token_usage"],
        "full_token_usage": now["token_usage"],
        "decode_sum_seq_lens": used,
        "gen_throughput": now["gen_throughput"],
        "num_queue_reqs": now["num_waiting_reqs"],
        "cache_hit_rate": now["cache_hit_rate"],
        "max_total_num_tokens": capacity,
        "kv_available_tokens": capacity - used - kept,
        "kv_evictable_tokens": kept,
        "kv_used_tokens": used,
        "spec_accept_length": statistics.accept_length,
        "spec_accept_rate": statistics.accept_rate,
        "spec_num_steps": speculative.draft_tokens - 1 if speculative else 0,
        "spec_num_draft_tokens": speculative.draft_tokens if speculative else 0,
        "num_retracted_reqs": sum(bool(flight.retractions) for flight in engine.scheduler.waiting),
        "utilization": now["utilization"],
        "context_len": engine.settings.context_length,
        "page_size": 1,
        "num_pages": capacity,
    }


def _counters(statistics: Statistics) -> dict[str, float]:
    return {
        "num_retracted_requests_total": statistics.retracted,
        "prompt_tokens_total": statistics.prompt_tokens,
        "generation_tokens_total": statistics.generated_tokens,
        "spec_verify_calls_total": statistics.verify_steps,
        "cached_tokens_total": statistics.cached_tokens,
        "num_requests_total": statistics.requests,
        "num_aborted_requests_total": statistics.aborted,
    }


def _histograms(statistics: Statistics) -> dict[str, Histogram]:
    return {
        "queue_time_seconds": statistics.queue_time,
        "time_to_first_token_seconds": statistics.first_token,
        "inter_token_latency_seconds": statistics.between_tokens,
        "request_time_per_output_token_seconds": statistics.per_token,
        "e2e_request_latency_seconds": statistics.latency,
    }


def _buckets(metric: Metric, labels: dict[str, str], histogram: Histogram) -> Iterator[str]:
    name, counts = metric.name, histogram.cumulative()
    if not counts[-1]:
        return
    for bound, count in zip(map(float, histogram.bounds), counts, strict=False):
        if bound in metric.bounds:
            yield _sample(f"{name}_bucket", labels | {"le": str(bound)}, count)
    yield _sample(f"{name}_bucket", labels | {"le": "+Inf"}, counts[-1])
    yield _sample(f"{name}_count", labels, counts[-1])
    yield _sample(f"{name}_sum", labels, histogram.sum)


def _sample(name: str, labels: dict[str, str], value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"sglang:{name}{{{shown}}} {float(value)}"


def _escaped(text: str) -> str:
    return _help(text).replace('"', r"\"")


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
