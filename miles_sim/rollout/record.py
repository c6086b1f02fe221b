"""One generation as the session server keeps it: the seam between sessions and assembly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Record:
    """What the engine was asked and what it said, once per generation.

    `prompt_ids`, `output_ids` and `log_probs` are flat; the last two have equal length. `output_ids` holds every
    sampled id, a matched stop token included. Sequences are shared, never copied or changed.
    """

    seq: int
    """Commit order within the session; the only order there is."""
    parent: int | None
    """`seq` of the generation whose reply this request continues; None opens a root."""
    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    log_probs: Sequence[float]
    finish_reason: str
    """As the chat choice gives it: `stop`, `tool_calls`, `length`, `abort`."""
    response_id: str
    meta_info: Mapping[str, Any]
    """The engine's, whole."""
    request_messages: Sequence[Mapping[str, Any]]
    """The conversation that was asked with, stored spellings in the shared prefix."""
    message: Mapping[str, Any]
    """The assistant message that was answered."""
    tools: Sequence[Mapping[str, Any]] | None = None
    requested_at: float = 0.0
    """Unix seconds, decoration only."""
    committed_at: float = 0.0
    request_options: Mapping[str, Any] = field(default_factory=dict)
    """Template options that this request carried."""
    replay_offsets: Mapping[str, int] = field(default_factory=dict)
    """First replay rows that the engine was asked for, under the request field's name; empty: from the first on."""
    concurrent_with: frozenset[int] = frozenset()
    """`seq` of siblings that were under way when this request was positioned: twins, not retries."""
