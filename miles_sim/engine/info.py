"""What an engine tells of itself over HTTP: health, model, settings, load. Keys as the release has them."""

import asyncio
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from miles_sim.engine.answers import answer, plain, refusal
from miles_sim.engine.body import Handler
from miles_sim.engine.clock import EPOCH
from miles_sim.engine.errors import RequestError
from miles_sim.engine.load import load, sections
from miles_sim.engine.prompt import INPUT_MARGIN
from miles_sim.engine.server_args import server_args

if TYPE_CHECKING:
    from miles_sim.engine.engine import Engine

HEALTH_CHECK_SECONDS = 20.0
"""A health check that waits so long for a pause to end is a 503 (SGLANG_HEALTH_CHECK_TIMEOUT)."""
_WEIGHT_VERSION_GONE = (
    "Endpoint '/get_weight_version' or '/weight_version' is deprecated. Please use '/model_info' instead."
)
_NO_LAYOUT: dict[str, Any] = {
    "enabled": False,
    "backend": None,
    "page_size": 1,
    "hicache_object_layout": {"pools": []},
    "reason": "Hierarchical cache is disabled",
}
_SECTIONS = frozenset({"core", "memory", "spec", "lora", "disagg", "queues", "all"})


class Info:
    """The handlers."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    def handlers(self) -> dict[str, Handler]:
        """Handlers by path, for all releases."""
        return {
            "/": self.root,
            "/health": self.health,
            "/health_generate": self.health,
            "/ready": self.ready,
            "/ping": self.ping,
            "/v1/models": self.models,
            "/v1/models/{model:path}": self.one_model,
            "/model_info": self.model_info,
            "/get_model_info": self.model_info,
            "/server_info": self.server_info,
            "/get_server_info": self.server_info,
            "/weight_version": self.weight_version,
            "/get_weight_version": self.weight_version,
            "/get_load": self.get_load,
            "/v1/loads": self.loads,
        }

    async def root(self, request: Request) -> Response:
        return answer("SGLang is running")

    async def health(self, request: Request) -> Response:
        """A generation of one id in a real engine, and so kept waiting by a pause."""
        if self._engine.scheduler.paused is None:
            return plain("")
        try:
            await asyncio.wait_for(self._engine.scheduler.resumed(), HEALTH_CHECK_SECONDS)
        except asyncio.TimeoutError:
            return plain("", 503)
        return plain("")

    async def ready(self, request: Request) -> Response:
        return plain("", 200 if self._engine.scheduler.paused is None else 503)

    async def ping(self, request: Request) -> Response:
        return plain("")

    async def models(self, request: Request) -> Response:
        settings = self._engine.settings
        cards = [_card(settings.model, settings.model, settings.context_length)]
        for name, path in self._engine.adapters.loaded.items():
            cards.append(_card(name, path, None, parent=settings.model))
        return answer({"object": "list", "data": cards})

    async def one_model(self, request: Request) -> Response:
        settings, name = self._engine.settings, request.path_params["model"]
        if name == settings.model:
            return answer(_card(name, name, settings.context_length))
        error = {
            "message": f"The model '{name}' does not exist",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        return answer({"error": error}, 404)

    async def model_info(self, request: Request) -> Response:
        engine = self._engine
        known = {
            "model_path": engine.model_path,
            "served_model_name": engine.settings.model,
            "tokenizer_path": engine.settings.model,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": engine.scheduler.weight_version,
            "load_format": "auto",
            "reasoning_parser": engine.settings.parsers[1],
            "tool_call_parser": engine.settings.parsers[0],
            "disaggregation_mode": "null",
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "model_type": "sim",
            "architectures": ["SimForCausalLM"],
        }
        return answer({key: known[key] for key in engine.release.model_info})

    async def server_info(self, request: Request) -> Response:
        """All server arguments, what the scheduler knows, and its state, which repeats the arguments
        (http_server.py, scheduler.py `get_internal_state`)."""
        engine = self._engine
        arguments, state = server_args(engine), _state(engine)
        values = {
            "status": "ready",
            "max_total_num_tokens": engine.max_total_tokens,
            "max_req_input_len": engine.settings.longest - INPUT_MARGIN,
            "startup_time": 0.0,
            "hicache_object_layout": _NO_LAYOUT,
            "launch_command": None,
            "internal_states": [arguments | {key: state[key] for key in engine.release.internal_state if key in state}],
            "version": engine.version,
            "kv_events": None,
            "frontend": "python",
        }
        return answer(arguments | {key: values[key] for key in engine.release.server_info})

    async def weight_version(self, request: Request) -> Response:
        if self._engine.release.weight_version_route == "gone":
            return refusal(RequestError(_WEIGHT_VERSION_GONE, kind="404", status=404))
        return answer({"weight_version": self._engine.scheduler.weight_version})

    async def get_load(self, request: Request) -> Response:
        known = load(self._engine)
        known |= {
            "rid": None,
            "http_worker_ipc": None,
            "num_reqs": known["num_total_reqs"],
            "num_tokens": known["num_total_tokens"],
            "num_pending_tokens": known["num_total_tokens"] - known["num_used_tokens"],
            "ts_tic": known["timestamp"],
        }
        return answer([{key: known[key] for key in self._engine.release.get_load}])

    async def loads(self, request: Request) -> Response:
        engine, query = self._engine, request.query_params
        asked = {part.strip() for part in query["include"].split(",")} if "include" in query else {"all"}
        if not asked <= _SECTIONS:
            text = f"Invalid include sections: {asked - _SECTIONS}. Valid options: {sorted(_SECTIONS)}"
            raise RequestError(text, kind="400")
        rank = query.get("dp_rank", "0")
        known = load(engine)
        entry = {key: known[key] for key in engine.release.loads} | sections(engine, asked)
        entries = [entry] if rank == "0" else []
        if query.get("format") == "prometheus":
            return Response(_exposed(entries), media_type="text/plain; version=0.0.4; charset=utf-8")
        body = {
            "timestamp": datetime.fromtimestamp(known["timestamp"], timezone.utc).isoformat(),
            "version": engine.version,
            "accelerator": None,
            "num_accelerators": 1,
            "dp_rank_count": len(entries),
            "loads": entries,
            "aggregate": _aggregate(entries),
        }
        return answer({key: body[key] for key in engine.release.loads_body})


def _state(engine: "Engine") -> dict[str, Any]:
    """What `internal_states` of any release have beside the arguments."""
    running, statistics = engine.settings.max_running_requests, engine.statistics
    state: dict[str, Any] = {
        "world_size": 1,
        "startup_time": 0.0,
        "last_gen_throughput": load(engine)["gen_throughput"],
        "memory_usage": _memory(engine),
        "effective_max_running_requests_per_dp": running or engine.max_total_tokens,
        "disaggregation_mode": "null",
        "decode_cuda_graph_bs": [],
        "decode_cuda_graph_memory_gb": 0.0,
    }
    if statistics.verify_steps:
        state["avg_spec_accept_length"] = 1 + statistics.accepted / statistics.verify_steps
    return state


def _memory(engine: "Engine") -> dict[str, Any]:
    """Gigabytes, of which a simulated engine takes none."""
    plain = {"weight": 0.0, "kvcache": 0.0, "token_capacity": engine.max_total_tokens, "graph": 0.0}
    if "startup_time" not in engine.release.internal_state:
        return plain
    phases = ("prefill", "decode", "target_verify", "draft_prefill", "draft_decode", "draft_extend")
    return {
        "weight": 0.0,
        "kvcache": 0.0,
        "startup_available": 0.0,
        "token_capacity": engine.max_total_tokens,
        "token_capacity_swa": None,
        "graph": dict.fromkeys(phases, 0.0),
    }


def _card(name: str, root: str, length: int | None, parent: str | None = None) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": EPOCH,
        "owned_by": "sglang",
        "root": root,
        "parent": parent,
        "max_model_len": length,
    }


def _aggregate(entries: list[dict[str, Any]]) -> dict[str, Any]:
    def total(key: str) -> Any:
        return sum(entry[key] for entry in entries)

    return {
        "total_running_reqs": total("num_running_reqs"),
        "total_waiting_reqs": total("num_waiting_reqs"),
        "total_reqs": total("num_running_reqs") + total("num_waiting_reqs"),
        "avg_token_usage": round(float(total("token_usage")), 4),
        "avg_throughput": round(float(total("gen_throughput")), 2),
        "avg_utilization": round(float(total("utilization")), 4),
    }


def _exposed(entries: list[dict[str, Any]]) -> str:
    """One gauge a number; sections give their short name to what is in them (v1_loads.py)."""
    short = {"speculative": "spec", "disaggregation": "disagg"}
    lines = []
    for entry in entries:
        flat: dict[str, Any] = {}
        for key, value in entry.items():
            if isinstance(value, dict):
                flat |= {f"{short.get(key, key)}_{inner}": number for inner, number in value.items()}
            elif key != "dp_rank":
                flat[key] = value
        for name, number in flat.items():
            if isinstance(number, int | float):
                lines += [f"# TYPE sglang_{name} gauge", f'sglang_{name}{{dp_rank="{entry["dp_rank"]}"}} {number}']
    return "\n".join(lines) + "\n"
