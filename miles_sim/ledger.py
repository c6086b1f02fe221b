"""The truth of a play: what the engine generated, and what the agent asked for and why.

Checks take their expectations from here, never from the code under contract.
"""

from typing import Any

from miles_sim.document import Document
from miles_sim.rows import RowsTruth


class SpecTruth(Document):
    """Speculative decoding of one generation, summed over the steps that were drawn."""

    accepted: int
    """Drafts accepted, the bonus id of each step not counted."""
    drafted: int
    verify_ct: int
    histogram: tuple[int, ...]
    """Entry k: verify steps that accepted exactly k drafts; no trailing zeros."""


class WeightSpan(Document):
    """Sampled ids `start` (included) to `end` (not included) of one generation, all by one version of the weights."""

    version: str
    start: int
    end: int


class Generation(Document):
    """One engine call that was answered with a generation."""

    id: str
    """The engine's response id: `id` of the chat completion and of `meta_info`."""
    endpoint: str
    """`chat` or `generate`."""
    asked: tuple[str, ...] = ()
    """Fields of the request that reached the engine with a value and that its release reads, sorted."""
    attempt: int
    """How often the very same thing had been asked before."""
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    """All sampled ids, a matched stop token included."""
    logprobs: tuple[float, ...]
    finish_reason: dict[str, Any]
    """As `/generate` gives it: `{"type": "stop", "matched": …}` and so on."""
    cached_tokens: int
    weight_version: str
    """Of the last sampled id; where none was sampled, the engine's at the end."""
    weight_versions: tuple[WeightSpan, ...] = ()
    """In order, without gaps or overlaps. Empty: `weight_version` for all."""
    retractions: int = 0
    """How often it was taken off the device and started again from what it had."""
    lora: str | None = None
    """Name of the adapter."""
    spec: SpecTruth | None
    """None without speculative decoding; all zero where no verify step ran."""
    misbehaved: str | None = None
    """How the model was asked to go wrong (`Reply.misbehave`)."""
    routed_experts: RowsTruth | None = None
    """With prompt and output ids (`rows.rows`): the experts of each transition; None for a model without."""
    indexer_topk: RowsTruth | None = None
    """As `routed_experts`, for the positions that an attention indexer chose."""


class Turn(Document):
    """One request that the agent made: which step of the plan, and what came back."""

    rollout: int
    """Position in the scenario's rollouts."""
    step: str
    """Key of the plan's step, for example `2` or `3.sub.1`."""
    kind: str
    """What made the agent ask: `say`, `tool`, `compact`, `subagent`, `retry`, …"""
    parent: str | None
    """Step whose reply the request continues; None where it opens a new root."""
    retry_of: str | None
    """Step that this one asks again; its reply supersedes that step's."""
    status: int
    """HTTP status; 0 where the transport failed."""
    response_id: str | None
    finish_reason: str | None
    """As the agent saw it."""
    failed: tuple[int, ...] = ()
    """Statuses of the earlier attempts of this same request, which an agent with `retries` made again; 0 where the
    transport failed."""
    doubled: tuple[str, ...] = ()
    """Headers of the reply that stand more than once, and may not."""

    @property
    def question(self) -> str:
        """Step that asks the same: its own, or that beside which an agent asked for another draw."""
        return self.step.partition("~")[0] if self.kind == "extra" else self.step


class Fired(Document):
    """One fault that struck."""

    fault: int
    """Position in the scenario's faults."""
    kind: str
    rollout: int
    step: str
    """Key of the plan's step; `open`, `collect`, `delete` between driver and session server."""
    attempt: int
    lost: tuple[str, ...] = ()
    """Response ids of generations that were made all the same, and whose reply nobody was given as it was."""


class Missed(Document):
    """One fault that was due and found nothing that it could spoil."""

    fault: int
    kind: str
    rollout: int
    step: str
    attempt: int
    reason: str | None


class Ledger(Document):
    """Everything true about one play. Order is the plan's, never that of arrival."""

    generations: tuple[Generation, ...] = ()
    turns: tuple[Turn, ...] = ()
    fired: tuple[Fired, ...] = ()
    missed: tuple[Missed, ...] = ()

    def generation(self, response_id: str) -> Generation | None:
        """The generation that the engine gave this id."""
        return next((g for g in self.generations if g.id == response_id), None)

    def turns_of(self, rollout: int) -> tuple[Turn, ...]:
        """What one rollout's agent asked, in plan order."""
        return tuple(turn for turn in self.turns if turn.rollout == rollout)

    def generations_of(self, rollout: int) -> tuple[Generation, ...]:
        """All that one rollout's agent was answered with, in plan order, superseded attempts included."""
        ids = {turn.response_id for turn in self.turns_of(rollout)}
        return tuple(g for g in self.generations if g.id in ids)
