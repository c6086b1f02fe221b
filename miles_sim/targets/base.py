"""The adapter protocol: what an implementation offers to be put under contract.

A target is told what to play as a `Job` (plain data), runs its own session server and its own
`generate` against the engine at `job["engine_url"]`, calls `agent` wherever its agent function is due, and
answers with an observation document (`miles_sim.targets.observation.Observation` as plain data).
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict

CAPABILITIES: dict[str, str] = {
    "session.v1": "serves linear sessions",
    "session.v2": "serves tree sessions: several leaves a rollout",
    "session.direct": "samples straight from the engine's /generate, tool calls between replies included",
    "hooks": "takes a sample picker and a post-processor of others",
    "node_cap": "most generations of a session can be set",
    "lora": "asks the engine for the adapter that is trained",
    "wire": "tells what crossed between session server and driver, and can be handed a broken payload",
    "spec_info": "samples carry speculative-decoding counters",
    "prefix_cache_info": "samples carry prefix-cache counters",
    "weight_versions": "samples carry weight versions",
    "routing_replay": "samples carry routed experts, a row a transition",
    "identity": "agentic v2 output is given a rollout_id",
    "batch.validate": "validates the nested batch of rollouts",
    "batch.train_data": "turns samples into train data",
    "batch.trim": "cuts a batch into whole training steps, and tells what fills none",
    "batch.shards": "splits train data between data-parallel ranks",
    "batch.metrics": "computes rollout metrics",
    "faults.cancel": "the task of one rollout can be cancelled from outside",
    "faults.driver": "its session server can be put behind another address, so that what the driver asks may fail",
    "leaks": "can tell the sessions and requests left open",
}
"""What a target can be able to do. What it does not claim is reported as not applicable."""


SAMPLE_FIELDS: tuple[str, ...] = (
    "group_index",
    "index",
    "rollout_id",
    "prompt",
    "tokens",
    "response",
    "response_length",
    "label",
    "reward",
    "loss_mask",
    "weight_versions",
    "rollout_log_probs",
    "rollout_routed_experts",
    "rollout_indexer_topk",
    "remove_sample",
    "status",
    "metadata",
    "non_generation_time",
    "spec_info",
    "prefix_cache_info",
)
"""Fields of a sample that an observation has a place for; a target's further ones stand in its `other`."""


class Hooks(TypedDict):
    """Behaviours that `miles_sim.targets.hooks` makes functions of; `default`: the target's own."""

    picker: str
    postprocessor: str


class DirectJob(TypedDict):
    """What a direct play has in addition: `generate` is the target's direct one, multi-turn where `tools` has any."""

    tools: list[dict[str, Any]]
    """Tool specs in OpenAI's form, rendered into the prompt."""
    parser: str
    """SGLang's name of the parser for the family's tool calls."""
    max_turns: int
    """Most replies of one rollout."""


class _Asked(TypedDict, total=False):
    """Parts of a job that only some plays need; a target that does not claim the capability never sees others."""

    direct: DirectJob
    """Only with session `direct`. Then each of `inputs` has its messages as `prompt`, and `agent` is the tool: it is
    awaited once a tool call, in order, with `request_kwargs` of `name` and `arguments`, and gives `content`."""
    hooks: Hooks
    """Absent: both default. Capability `hooks`."""
    message_matcher: str
    """`strict`, `loose_tool_call`, or `role_content_only`. Absent: strict."""
    max_nodes: int | None
    """Most generations of a session; None or absent: the target's own. Capability `node_cap`."""
    lora: str | None
    """Name of the adapter that is trained; None or absent: the model itself is. Capability `lora`."""
    garble: str | None
    """How each payload of samples is broken on its way to the driver (`miles_sim.targets.garble`); None or absent: not
    at all. Capability `wire`."""
    session_listen: int
    """Port on loopback that the session server is to listen on. Absent: any. Capability `faults.driver`."""
    session_url: str
    """Where driver and agents are to reach it: what stands there hands requests on. Absent: where it listens."""


class Job(_Asked):
    """One play, as a target sees it."""

    session: Literal["v1", "v2", "direct"]
    engine_url: str
    tokenizer: str
    """Built-in family name."""
    tokenizer_folder: str
    """The same tokenizer as a Hugging Face folder."""
    tito: str
    """miles' name of the family's boundary behaviour (`--tito-model`)."""
    inputs: list[dict[str, Any]]
    """One input sample a rollout: `index`, `rollout_id`, `group_index`, `prompt`, `label`, `metadata`, `reward`."""
    sampling: list[dict[str, Any]]
    """Sampling parameters of each rollout, under miles' names, `sampling_seed` included.

    Before the batch part, a sample that has no reward and was not aborted is given the `reward` of its metadata,
    0.0 where there is none: a reward model of which nothing needs to be downloaded. `batch` may say otherwise.
    """
    max_seq_len: int | None
    speculative_algorithm: str | None
    routing_replay: bool
    """Ask for routed experts; they have `routed_experts_layers` layers of `routed_experts_topk` each."""
    routed_experts_layers: int
    routed_experts_topk: int
    batch: dict[str, Any]
    """`global_batch_size`, `dp_size`, `normalize`, `rewards`, `rollout_time`, as a scenario's `batch` has them."""


class TargetInfo(TypedDict):
    """What `describe` answers."""

    name: str
    version: str
    python: str
    optimize: int
    """`sys.flags.optimize`: 1 under `python -O`."""
    capabilities: list[str]
    absent: dict[str, str]
    """Capability to the reason why it is not there."""
    stand_ins: list[str]
    """Modules that were replaced to import the target."""


class AgentFunction(Protocol):
    """Plays the agent of one rollout against a session; raises where the plan's agent crashes.

    In a direct play it runs one tool call, see `Job.direct`; `base_url` is empty then.
    """

    def __call__(
        self, rollout: int, base_url: str, request_kwargs: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> Awaitable[dict[str, Any] | None]: ...


class Target(Protocol):
    """An implementation under contract.

    One that has a true `bounds_plays` ends a play that takes too long by itself; others are given up after a minute.
    """

    async def describe(self) -> TargetInfo: ...

    async def play(self, job: Job, agent: AgentFunction) -> dict[str, Any]:
        """Plays every rollout of `job` (all at the same time) and returns an observation document.

        What `generate` raises belongs in the document. Raises only where the target itself is unusable.
        """
        ...

    async def close(self) -> None: ...


class TargetError(RuntimeError):
    """The target cannot be used: not importable, or it answered nonsense.

    `install`: shell commands that may help.
    """

    def __init__(self, message: str, *, install: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.install = tuple(install)


class PlayError(TargetError):
    """The target crashed or hung in a play; the next play may do better.

    `brief`: the same in one line that is alike for equal plays.
    """

    def __init__(self, message: str, brief: str) -> None:
        super().__init__(message)
        self.brief = brief
