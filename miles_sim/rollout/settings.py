"""What decides how a rollout is served, assembled and labelled. One object, validated when it is made."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

MessageMatcher = Callable[[dict[str, Any], dict[str, Any]], bool]


@dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    """Settings of generate, the session server and assembly; names are miles' where miles has them."""

    session: Literal["v1", "v2"] = "v2"
    identity: Literal["always", "several_leaves"] = "always"
    """`always`: each v2 sample is given the rollout's id. `several_leaves`: a single leaf keeps the input's
    (miles PR #2536)."""
    speculative_algorithm: str | None = None
    """None: speculative counters are not collected."""
    max_seq_len: int | None = None
    """Most ids of a sample, prompt and observations included."""
    message_matcher: str | MessageMatcher = "strict"
    """`strict`, `loose_tool_call`, `role_content_only`, or an own function of (stored, replayed) message."""
    sample_picker: str | Callable[..., Any] = "drop_retries"
    """`drop_retries`, `keep_all`, a dotted path, or a function of (samples, session_metadata)."""
    sample_postprocessor: str | Callable[..., Any] = "default"
    """`default`, a dotted path, or a function of (samples, session_metadata)."""
    max_nodes: int = 1024
    """Most generations of one session."""
    request_timeout: float = 600.0
    """Seconds for one engine request."""
    collect_timeout: float = 120.0
    """Seconds for the collect and the delete request, each."""
    routing_replay: bool = False
    routed_experts_layers: int = 1
    """Layers in a routed-experts payload: it says no shape of its own."""
    indexer_replay: bool = False
    record_messages: bool = False
    """Sample metadata carries the whole conversation under `messages`."""

    def __post_init__(self) -> None:
        if self.session not in ("v1", "v2"):
            raise ValueError(f"session: {self.session!r} is not 'v1' or 'v2'")
        if self.identity not in ("always", "several_leaves"):
            raise ValueError(f"identity: {self.identity!r} is not 'always' or 'several_leaves'")
        if self.max_seq_len is not None and self.max_seq_len < 1:
            raise ValueError(f"max_seq_len: {self.max_seq_len!r} is not at least 1")
        if self.routed_experts_layers < 1:
            raise ValueError(f"routed_experts_layers: {self.routed_experts_layers!r} is not at least 1")
        if self.max_nodes < 1:
            raise ValueError(f"max_nodes: {self.max_nodes!r} is not at least 1")
