"""The scenario: one document that says all that happens in a play."""

from typing import Any, Literal

from pydantic import Field, model_validator

from miles_sim.agent.plan import Compact, Parallel, Plan, Say, Subagent, Tool, keyed
from miles_sim.document import Document
from miles_sim.engine.settings import EngineSettings
from miles_sim.faults.plan import Fault

SessionVersion = Literal["v1", "v2", "direct"]
Picker = Literal["default", "all", "earliest", "latest", "none", "raises", "foreign", "duplicate", "nothing"]
Postprocessor = Literal["default", "marks", "raises", "duplicate", "nothing"]
Garble = Literal["cut", "no_tensor", "wrong_dtype", "stray_tensor", "no_json", "no_field"]


class RolloutInput(Document):
    """One prompt as the trainer hands it to `generate`."""

    index: int | None = 7
    """Place of the sample among all that were ever drawn."""
    rollout_id: int | None = None
    """Explicit identity; 0 is one. None: the index stands in for it."""
    group_index: int | None = 0
    """Which prompt the sample belongs to."""
    label: str | None = None
    metadata: dict[str, Any] = {}
    reward: float | None = None
    """Reward that the input holds already; a `reward` that the agent returns comes before it."""


class Sampling(Document):
    """Sampling parameters under miles' names."""

    max_new_tokens: int = Field(default=64, ge=1)
    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)


class Batch(Document):
    """How the trainer takes the rollouts of a play together."""

    global_batch_size: int | None = Field(default=None, ge=1)
    """Rollouts of a training step; those that fill none are left out. None: one step, as many as `dp_size` divides."""
    dp_size: int = Field(default=1, ge=1)
    """Data-parallel ranks."""
    normalize: Literal["none", "mean", "std"] = "std"
    """Rewards as they are; less the mean of their prompt's rollouts; and over their standard deviation as well."""
    rollout_time: float | None = Field(default=None, gt=0)
    """Seconds that the rollouts of the batch took together; with it throughput is part of the metrics."""
    rewards: Literal["rollout", "sample"] = "rollout"
    """`sample`: a reward model scores each sample by itself: 1 for a rollout's first, 1/2 for its second, and so on."""


class Hooks(Document):
    """Functions of someone's own that choose and finish a tree session's samples."""

    picker: Picker = "default"
    """`all`: every leaf. `earliest`, `latest`: one, by commit. `none`: an empty list. `raises`: an error. `foreign`:
    copies, which it was not given. `duplicate`: one of them twice. `nothing`: no list at all."""
    postprocessor: Postprocessor = "default"
    """`marks`: the default one, then `marked` in each sample's metadata. Others as with `picker`."""


class Scenario(Document):
    """Engine settings, agent plan and rollout input under one seed."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    title: str = Field(min_length=1, max_length=120)
    """What happens, in one line."""
    seed: int = Field(default=0, ge=0)
    sessions: tuple[SessionVersion, ...] = Field(default=("v2",), min_length=1)
    """Ways that can serve this plan: session server `v1` is linear, `v2` a tree; `direct` asks the engine itself."""
    engine: EngineSettings = EngineSettings()
    rollouts: tuple[RolloutInput, ...] = Field(default=(RolloutInput(),), min_length=1, max_length=1_000)
    """Each plays the plan once, all at the same time, against one engine and one session server."""
    sampling: Sampling = Sampling()
    max_seq_len: int | None = Field(default=None, ge=1)
    routing_replay: bool = False
    """Samples carry the experts that each transition was routed to; needs `engine.experts`."""
    lora: str | None = None
    """Adapter that is trained, of those in `engine.lora`; miles calls its own `miles_lora`. None: the model itself."""
    batch: Batch = Batch()
    hooks: Hooks = Hooks()
    matcher: Literal["strict", "loose_tool_call", "role_content_only"] = "strict"
    """How a tree session tells whether replayed messages are those it stored."""
    max_nodes: int | None = Field(default=None, ge=1)
    """Most generations of a session; None: as many as the target lets there be."""
    abandoned: bool = False
    """When the agent returns, one more request of its own is under way, and nobody waits for the answer."""
    replayed: Literal["alike", "one_by_one"] | None = None
    """It is played a second time: just so, or with one agent running after the other."""
    garble: Garble | None = None
    """How each payload of samples is broken between session server and driver."""
    plan: Plan
    faults: tuple[Fault, ...] = Field(default=(), max_length=1_000)
    """What goes wrong, where and when."""

    @model_validator(mode="after")
    def _distinct(self) -> "Scenario":
        if len(set(self.sessions)) != len(self.sessions):
            raise ValueError(f"sessions: {list(self.sessions)} names one twice")
        return self

    @model_validator(mode="after")
    def _replayable(self) -> "Scenario":
        if self.routing_replay and self.engine.experts is None:
            raise ValueError("routing_replay: needs engine.experts: an engine without has no rows to replay")
        return self

    @model_validator(mode="after")
    def _loaded(self) -> "Scenario":
        if self.lora is not None and self.lora not in (self.engine.lora or {}):
            raise ValueError(f"lora: {self.lora!r} is none of engine.lora: {sorted(self.engine.lora or {})}")
        return self

    @model_validator(mode="after")
    def _servable(self) -> "Scenario":
        if "v1" in self.sessions:
            for key, step in keyed(self.plan.steps):
                if isinstance(step, Compact | Subagent | Parallel):
                    raise ValueError(f"sessions: v1 serves linear plans only, and step {key!r} is a {step.do}")
        return self

    @model_validator(mode="after")
    def _direct(self) -> "Scenario":
        if "direct" not in self.sessions:
            return self
        for number, (key, step) in enumerate(keyed(self.plan.steps)):
            wanted = Tool if number else Say
            if not isinstance(step, wanted) or step.max_tokens is not None or (isinstance(step, Say) and step.draw):
                raise ValueError(
                    f"sessions: direct serves one say, then tool steps, all under the rollout's own sampling, "
                    f"and step {key!r} is not"
                )
        return self

    @model_validator(mode="after")
    def _of_trees(self) -> "Scenario":
        if self.hooks != Hooks() and self.sessions != ("v2",):
            raise ValueError("hooks: only tree sessions have hooks: sessions must be [v2]")
        return self

    @model_validator(mode="after")
    def _strikable(self) -> "Scenario":
        if self.faults:
            from miles_sim.faults.check import check  # loads every kind

            check(self.faults, self.plan, rollouts=len(self.rollouts), sessions=self.sessions)
        return self
