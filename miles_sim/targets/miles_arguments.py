"""The part of miles' command line that a play looks at."""

from argparse import Namespace
from typing import Any
from urllib.parse import urlsplit

from .base import Job
from .miles_functions import paths
from .miles_wire import PATIENCE

_APPEND_ROLES = ["tool", "user", "system"]


def arguments(job: Job, *, checkpoint: str, session_url: str) -> Namespace:
    """Settings for `job`: `checkpoint` is its tokenizer's folder, `session_url` where the session server is reached."""
    return Namespace(
        **_rollout(job, checkpoint), **_session(job, session_url), **_direct(job), **_trainer(job), **paths(job)
    )


def _rollout(job: Job, checkpoint: str) -> dict[str, Any]:
    return {
        "hf_checkpoint": checkpoint,
        "chat_template_path": None,
        "apply_chat_template_kwargs": None,
        "generate_multi_samples": False,
        "max_seq_len": job["max_seq_len"],
        "save_debug_trajectory_data": None,
        "sglang_speculative_algorithm": job["speculative_algorithm"],
        "use_rollout_routing_replay": job["routing_replay"],
        "use_rollout_indexer_replay": False,
        "lora_rank": 0 if job.get("lora") is None else 8,
        "lora_adapter_path": None,
        "num_layers": job["routed_experts_layers"],
        "moe_router_topk": job["routed_experts_topk"],
        "sglang_server_concurrency": 1024,
        "rollout_num_gpus": 1,
        "rollout_num_gpus_per_engine": 1,
        "eval_num_gpus": 0,
        "use_distributed_post": False,
    }


def _session(job: Job, url: str) -> dict[str, Any]:
    server = urlsplit(url)
    return {
        "tito_model": job["tito"],
        "tito_allowed_append_roles": list(_APPEND_ROLES),
        "use_session_server": job["session"],
        "session_server_ip": server.hostname,
        "session_server_port": server.port,
        "session_server_ports": [server.port],
        "session_message_matcher": job.get("message_matcher", "strict"),
        "miles_router_timeout": PATIENCE,
    }


def _direct(job: Job) -> dict[str, Any]:
    """The engine stands where the router is looked for: one that hands requests on as they are."""
    engine, asked = urlsplit(job["engine_url"]), job.get("direct")
    return {
        "sglang_router_ip": engine.hostname,
        "sglang_router_port": engine.port,
        "sglang_router_policy": None,
        "use_miles_router": False,
        "miles_router_middleware_paths": [],
        "partial_rollout": False,
        "rollout_max_response_len": 1 << 20,
        "rollout_max_context_len": job["max_seq_len"],
        "generate_max_turns": asked["max_turns"] if asked else 1,
        "generate_tool_call_parser": asked["parser"] if asked else None,
    }


def _trainer(job: Job) -> dict[str, Any]:
    """A scenario without a size of steps means one step of all rollouts: as many as the ranks can share where there
    are several, and there is nothing to trim where there is one."""
    batch, groups = job["batch"], [entry.get("group_index") for entry in job["inputs"]]
    size, ranks = batch["global_batch_size"], batch["dp_size"]
    return {
        "reward_key": None,
        "advantage_estimator": "grpo",
        "rewards_normalization": batch["normalize"] != "none",
        "grpo_std_normalization": batch["normalize"] == "std",
        "n_samples_per_prompt": max(1, len(groups) // max(1, len(set(groups)))),
        "rollout_batch_size": max(1, len(set(groups))),
        "global_batch_size": size or len(groups),
        "use_dynamic_global_batch_size": size is None and ranks > 1,
        "disable_rollout_trim_samples": size is None and ranks == 1,
        "balance_data": False,
        "use_dynamic_batch_size": True,
        "max_tokens_per_gpu": 1 << 30,
        "micro_batch_size": None,
        "load_debug_rollout_data": None,
        "log_reward_category": None,
        "ci_test": False,
    }
