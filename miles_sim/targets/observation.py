"""All that a target showed of one play: plain data, one versioned schema, no type of any target's."""

from typing import Any, Literal

from pydantic import Field

from miles_sim.document import Document

SCHEMA: Literal["miles-sim/observation/2"] = "miles-sim/observation/2"


class Error(Document):
    """An exception as it left the target."""

    type: str
    """Class name."""
    bases: tuple[str, ...] = ()
    """Class names of its bases, nearest first."""
    message: str = ""


class Counters(Document):
    """`Sample.spec_info`, and the two ratios as the target states them; None: the target calls it unavailable."""

    spec_accept_token_num: int
    spec_draft_token_num: int
    spec_verify_ct: int
    completion_token_num: int
    accept_rate: float | None = None
    accept_length: float | None = None


class PrefixCache(Document):
    """`Sample.prefix_cache_info`."""

    cached_tokens: int
    total_prompt_tokens: int


class Rows(Document):
    """A replay array: one row a transition, `len(tokens) - 1` of them."""

    shape: tuple[int, ...]
    dtype: str
    base64: str
    """Little-endian, C order."""


class SampleView(Document):
    """One sample at the driver. Fields as in miles; a target's own further fields stand in `other`."""

    group_index: int | None = None
    index: int | None = None
    rollout_id: int | None = None
    prompt: Any = ""
    tokens: tuple[int, ...] = ()
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: float | dict[str, Any] | None = None
    loss_mask: tuple[int, ...] | None = None
    weight_versions: tuple[str, ...] = ()
    rollout_log_probs: tuple[float, ...] | None = None
    rollout_routed_experts: Rows | None = None
    rollout_indexer_topk: Rows | None = None
    remove_sample: bool = False
    status: str = "pending"
    metadata: dict[str, Any] = {}
    non_generation_time: float = 0.0
    spec_info: Counters | None = None
    prefix_cache_info: PrefixCache | None = None
    other: dict[str, Any] = {}


class RolloutView(Document):
    """What became of one rollout."""

    input: SampleView
    """The input sample as it stood before."""
    input_after: SampleView
    """The same object afterwards."""
    agent_ran: bool
    """The agent function was called."""
    error: Error | None = None
    """What `generate` raised; then there are no samples."""
    returned: Literal["list", "single"] | None = None
    samples: tuple[SampleView, ...] = ()
    shared_objects: tuple[str, ...] = ()
    """Mutable values that two samples, or a sample and the input, hold in common: `0.tokens is 1.tokens`."""
    session_metadata: dict[str, Any] | None = None
    payload: str | None = None
    """What the session server sent to the driver as this rollout's samples, base64, before it was broken on the way
    if the job says so; None: cannot be told, or nothing was sent."""


class ShardView(Document):
    """What one data-parallel rank is given."""

    columns: tuple[str, ...]
    """Names of its columns."""
    partition: tuple[int, ...]
    """Its rows of the train data, in its order."""
    rollout_ids: tuple[int, ...]
    num_microbatches: tuple[int, ...]
    """Of each training step."""


class BatchView(Document):
    """What the trainer's side made of all rollouts of the play together."""

    error: Error | None = None
    """What validation or conversion raised."""
    train_data: dict[str, Any] | None = None
    """Columns, each one entry a row, under miles' names: `tokens`, `loss_masks`, `rollout_ids`, …"""
    dropped: tuple[int, ...] | None = None
    """Effective ids of the rollouts that fill no training step and are not in the train data; None: cannot be told."""
    shards: tuple[ShardView, ...] | None = None
    """One a rank; None: the target does not split."""
    metrics: dict[str, float] | None = None
    """Metric name to value. A metric without data is left out."""


class Observation(Document):
    """All that a target showed of one play."""

    schema_: Literal["miles-sim/observation/1", "miles-sim/observation/2"] = Field(default=SCHEMA, alias="schema")
    """A document of version 1 is one of version 2 that leaves out what 2 has more, all of it optional."""
    session: Literal["v1", "v2", "direct"]
    rollouts: tuple[RolloutView, ...]
    batch: BatchView | None = None
    """None: the target has no such part."""
    sessions_open: int | None = None
    """Sessions left on the session server when all rollouts were over; None: cannot be told."""
    requests_open: int | None = None
    """Engine requests of this play still under way then; None: cannot be told."""
