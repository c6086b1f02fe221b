"""The server arguments of a release, as `/server_info` tells them: data from `fixtures/server_args.yaml`."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import Field

from miles_sim.document import Document, DocumentError, read
from miles_sim.resources import FIXTURES
from miles_sim.yaml_file import YamlFile

if TYPE_CHECKING:
    from miles_sim.engine.engine import Engine

FILE = FIXTURES / "server_args.yaml"


class _Changes(Document):
    """From the release before."""

    add: dict[str, Any] = {}
    drop: tuple[str, ...] = ()
    change: dict[str, Any] = {}


class _Arguments(Document):
    source: str = Field(min_length=1)
    releases: dict[str, _Changes]


@lru_cache(maxsize=32)
def defaults(profile: str) -> dict[str, Any]:
    """Default by name of all arguments that the release has, in its order; `DocumentError` for an unknown profile."""
    known = read(_Arguments, YamlFile(FILE).data, name="fixtures/server_args.yaml")
    if profile not in known.releases:
        raise DocumentError(f"fixtures/server_args.yaml: profile: {profile!r} is none of {', '.join(known.releases)}")
    found: dict[str, Any] = {}
    for name, changes in known.releases.items():
        found = {key: value for key, value in found.items() if key not in changes.drop} | changes.add | changes.change
        if name == profile:
            break
    return found


def server_args(engine: "Engine") -> dict[str, Any]:
    """The arguments with which a real server would be this engine; what it is silent about is at its default."""
    settings, speculative = engine.settings, engine.settings.speculative
    tool_parser, reasoning_parser = settings.parsers
    known = {
        "model_path": engine.model_path,
        "tokenizer_path": settings.model,
        "served_model_name": settings.model,
        "weight_version": engine.scheduler.weight_version,
        "context_length": settings.context_length,
        "random_seed": engine.seed,
        "max_running_requests": settings.max_running_requests,
        "max_queued_requests": settings.max_queued_requests,
        "max_total_tokens": settings.cache_tokens,
        "disable_radix_cache": not settings.prefix_cache,
        "stream_interval": settings.stream_interval,
        "stream_output": settings.incremental_streaming,
        "incremental_streaming_output": settings.incremental_streaming,
        "enable_cache_report": settings.cache_report,
        "enable_metrics": settings.metrics,
        "enable_lora": engine.adapters.enabled or None,
        "lora_paths": _adapters(settings.lora),
        "tool_call_parser": tool_parser,
        "reasoning_parser": reasoning_parser,
        "enable_return_routed_experts": settings.experts is not None,
        "enable_return_indexer_topk": settings.indexer is not None,
        "speculative_algorithm": speculative and speculative.algorithm,
        "speculative_num_draft_tokens": speculative and speculative.draft_tokens,
        "speculative_num_steps": speculative and speculative.draft_tokens - 1,
        "speculative_eagle_topk": speculative and 1,
    }
    found = defaults(engine.settings.profile)
    return found | {name: value for name, value in known.items() if name in found}


def _adapters(loaded: dict[str, str] | None) -> list[dict[str, Any]] | None:
    if loaded is None:
        return None
    return [{"lora_id": name, "lora_name": name, "lora_path": path, "pinned": False} for name, path in loaded.items()]
