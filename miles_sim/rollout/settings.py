"""What decides how a rollout is served, assembled and labelled. One object, validated when it is made.

What a name or a dotted path stands for is looked up where it is used: by the session server, when it starts.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from miles_sim.rollout.errors import SettingsError

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
    """Most ids of a sample, prompt and observations included. The session server's own holds where a collect request
    gives none, or null."""
    message_matcher: str | MessageMatcher = "strict"
    """`strict`, `loose_tool_call`, `role_content_only`, a dotted path, or a function of (stored, replayed) message."""
    sample_picker: str | Callable[..., Any] = "drop_retries"
    """`drop_retries`, `keep_all`, a dotted path, or a function of (samples, session_metadata)."""
    sample_postprocessor: str | Callable[..., Any] = "default"
    """`default`, a dotted path, or a function of (samples, session_metadata)."""
    tools_change: Literal["branch", "keep"] = "branch"
    """A request whose tool list is not that of the history it continues. `branch`: it opens a root, so that its list
    reaches the prompt; v1, which has one root, refuses it. `keep`: the stored prompt stays, as in miles."""
    template_options: Mapping[str, Any] = field(default_factory=dict)
    """Keywords for the chat template of every request; a request's own `chat_template_kwargs` go before them."""
    lora_path: str | None = None
    """The adapter that each engine request names, whatever the client says; None leaves that to the client."""
    max_nodes: int = 1024
    """Most generations of one session."""
    session_idle_timeout: float | None = None
    """Seconds without a request after which a session is closed as abandoned; None: never."""
    max_body_bytes: int = 64 * 1024 * 1024
    """Most bytes of one request body; a larger one is 413."""
    request_timeout: float = 600.0
    """Seconds for one engine request."""
    collect_timeout: float = 120.0
    """Seconds for the collect and the delete request, each with all its tries."""
    collect_tries: int = 3
    """How often the collect and the delete request are made, each, where the connection breaks; at once, without a
    pause. Both change nothing when they are made again."""
    routing_replay: bool = False
    replay_rows: Literal["whole", "additional"] = "whole"
    """Which routed-experts rows an engine request asks for: all, or only those that the session does not hold yet
    (miles' way while weights are updated in place)."""
    routed_experts_layers: int = 1
    """Layers in a routed-experts payload: it says no shape of its own."""
    indexer_replay: bool = False
    record_messages: bool = False
    """Sample metadata carries the whole conversation under `messages`."""

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise SettingsError(f"{name}: {getattr(self, name)!r} is not {' or '.join(map(repr, allowed))}")
        for name, nullable in _COUNTS.items():
            value = getattr(self, name)
            if not (value is None and nullable) and (type(value) is not int or value < 1):
                raise SettingsError(f"{name}: {value!r} is not a whole number of at least 1")
        for name, nullable in _SECONDS.items():
            value = getattr(self, name)
            if not (value is None and nullable) and not _is_duration(value):
                raise SettingsError(f"{name}: {value!r} is not a number of seconds above 0")
        for name in _SWITCHES:
            if type(getattr(self, name)) is not bool:
                raise SettingsError(f"{name}: {getattr(self, name)!r} is not True or False")
        for name in _NAMES:
            if not isinstance(getattr(self, name), str | None):
                raise SettingsError(f"{name}: {getattr(self, name)!r} is not None or a string")
        for name in _FUNCTIONS:
            value = getattr(self, name)
            if not isinstance(value, str) and not callable(value):
                raise SettingsError(f"{name}: {value!r} is not a name, a dotted path or a function")
        if not isinstance(self.template_options, Mapping):
            raise SettingsError(f"template_options: {self.template_options!r} is not a mapping")


_CHOICES: dict[str, tuple[Any, ...]] = {
    "session": ("v1", "v2"),
    "identity": ("always", "several_leaves"),
    "tools_change": ("branch", "keep"),
    "replay_rows": ("whole", "additional"),
}
_COUNTS = {
    "max_seq_len": True,
    "max_nodes": False,
    "max_body_bytes": False,
    "routed_experts_layers": False,
    "collect_tries": False,
}
"""Whether each may be None."""
_SWITCHES = ("routing_replay", "indexer_replay", "record_messages")
_NAMES = ("speculative_algorithm", "lora_path")
_FUNCTIONS = ("message_matcher", "sample_picker", "sample_postprocessor")
_SECONDS = {"request_timeout": False, "collect_timeout": False, "session_idle_timeout": True}


def _is_duration(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
