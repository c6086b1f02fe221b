"""How busy an engine is at this moment, as `/v1/loads`, `/get_load` and `/metrics` tell it."""

from typing import TYPE_CHECKING, Any

from miles_sim.engine.clock import EPOCH, MICRO

if TYPE_CHECKING:
    from miles_sim.engine.engine import Engine


def load(engine: "Engine") -> dict[str, Any]:
    """All core values, by SGLang's names. Times are of the engine's own clock."""
    scheduler, settings = engine.scheduler, engine.settings
    running = sum(flight.asked.prompt.size + flight.length for flight in scheduler.running)
    waiting = sum(flight.asked.prompt.size + flight.length for flight in scheduler.waiting)
    capacity = engine.max_total_tokens
    most = settings.max_running_requests
    step = settings.latency.decode(1)
    return {
        "timestamp": EPOCH + scheduler.now() / MICRO,
        "dp_rank": 0,
        "num_running_reqs": len(scheduler.running),
        "num_waiting_reqs": len(scheduler.waiting),
        "num_total_reqs": len(scheduler.running) + len(scheduler.waiting),
        "num_waiting_uncached_tokens": waiting,
        "num_used_tokens": running,
        "num_total_tokens": running + waiting,
        "num_active_tokens": running,
        "num_prealloc_ready_tokens": 0,
        "max_total_num_tokens": capacity,
        "max_running_requests": most or capacity,
        "token_usage": running / capacity,
        "gen_throughput": len(scheduler.running) * MICRO / step if step and not scheduler.stopped else 0.0,
        "cache_hit_rate": engine.statistics.hit_rate,
        "utilization": len(scheduler.running) / most if most else 0.0,
        "total_prefill_uncached_tokens": engine.statistics.prompt_tokens - engine.statistics.cached_tokens,
        "total_prefill_busy_us": 0,
        "decode_moments": None,
    }


def sections(engine: "Engine", asked: set[str]) -> dict[str, Any]:
    """The optional sections that were asked for, of those that the engine has something in."""
    statistics, scheduler = engine.statistics, engine.scheduler
    every: dict[str, tuple[str, dict[str, Any] | None]] = {
        "memory": (
            "memory",
            {"weight_gb": 0.0, "kv_cache_gb": 0.0, "graph_gb": 0.0, "token_capacity": engine.max_total_tokens},
        ),
        "speculative": (
            "spec",
            {"accept_length": 1 + statistics.accepted / statistics.verify_steps, "accept_rate": statistics.accept_rate}
            if statistics.verify_steps
            else None,
        ),
        "queues": (
            "queues",
            {
                "waiting": len(scheduler.waiting),
                "grammar": 0,
                "paused": 0,
                "retracted": sum(bool(flight.retractions) for flight in scheduler.waiting),
            },
        ),
    }
    return {
        name: content
        for name, (short, content) in every.items()
        if content is not None and ("all" in asked or short in asked)
    }
