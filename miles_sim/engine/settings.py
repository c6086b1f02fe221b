"""All that decides what an engine answers, apart from the requests themselves."""

from functools import cached_property
from typing import Literal

from pydantic import Field, field_validator, model_validator

from miles_sim.document import Document
from miles_sim.engine.clock import Latency
from miles_sim.engine.experts import Experts, Indexer
from miles_sim.reply import Reply, ReplyRule
from miles_sim.tokenizer import FAMILIES


class Speculative(Document):
    """Speculative decoding: how many ids are drafted a step, and how likely each position is accepted.

    A verify step accepts drafts from the left until the first refusal, then adds one bonus id.
    """

    algorithm: Literal["EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"] = "EAGLE"
    draft_tokens: int = Field(default=4, ge=2, le=64)
    """SGLang's `speculative_num_draft_tokens`: ids a verify step looks at, the bonus id included."""
    acceptance: tuple[float, ...] | None = None
    """Probability that the draft at each position is accepted, given that those before it were;
    the last one holds for all further positions. None: 0.8, 0.6, 0.4, unless `accept_length` is given."""
    accept_length: float | None = Field(default=None, ge=1)
    """In place of `acceptance`: ids that a verify step gives on average, its bonus id included. One probability for
    all positions follows from it."""

    @field_validator("acceptance")
    @classmethod
    def _probabilities(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is not None and (not value or any(not 0 <= p <= 1 for p in value)):
            raise ValueError("one or more probabilities from 0 to 1")
        return value

    @model_validator(mode="after")
    def _one_of_both(self) -> "Speculative":
        if self.accept_length is not None and self.acceptance is not None:
            raise ValueError("acceptance and accept_length exclude each other")
        if self.accept_length is not None and self.accept_length > self.draft_tokens:
            raise ValueError(
                f"accept_length: {self.accept_length:g} ids a step are more than draft_tokens, {self.draft_tokens}"
            )
        return self

    @cached_property
    def positions(self) -> tuple[float, ...]:
        """Acceptance by position."""
        if self.accept_length is not None:
            return (uniform_acceptance(self.accept_length, self.draft_tokens),)
        return self.acceptance or (0.8, 0.6, 0.4)


def uniform_acceptance(length: float, draft_tokens: int) -> float:
    """The probability with which 1 + p + p² + … (one term a draft token) is `length`."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum(middle**k for k in range(draft_tokens)) < length:
            low = middle
        else:
            high = middle
    return high


class LedgerSettings(Document):
    """What an engine that serves for long remembers; without bounds all, as a play needs it."""

    keep: int | None = Field(default=None, ge=0)
    """Generations in memory: the last so many, at least; None: all."""
    spool: str | None = None
    """A file to which each generation is appended, a JSON document a line."""
    questions: int | None = Field(default=None, ge=1)
    """Distinct requests whose attempts are counted; one asked least recently is forgotten first, and its next
    attempt is answered as the first one was, id and all. None: all."""


class EngineSettings(Document):
    """One simulated engine."""

    profile: str = "sglang-0.5.16"
    """Which release's wire it speaks: a file name in `fixtures/wire/`."""
    tokenizer: str = "chatml"
    """A built-in family: `chatml`, `delimiter`; `qwen3`, `deepseek`, `deepseek31`, `glm` and `kimi` think."""
    model: str = "sim"
    context_length: int = Field(default=32_768, ge=16)
    weight_version: str = "default"
    speculative: Speculative | None = None
    prefix_cache: bool = True
    """Off: `cached_tokens` is 0 for every request, as under `--disable-radix-cache`."""
    cache_tokens: int | None = Field(default=None, ge=1)
    """Ids that the KV cache holds, so the most for one request and all that is kept of earlier ones, of which what was
    used least recently goes first. None: no bound."""
    ledger: LedgerSettings = LedgerSettings()
    tool_call_parser: Literal["family", "qwen25", "deepseekv3", "deepseekv31", "glm45", "kimi_k2"] | None = "family"
    """SGLang's `--tool-call-parser`; `family`: the one for the tokenizer's format; None: calls stay text."""
    reasoning_parser: Literal["family", "qwen3", "qwen3-thinking", "deepseek-r1", "glm45", "kimi_k2"] | None = "family"
    """SGLang's `--reasoning-parser`; `family`: the one for the tokenizer's format, none where that does not think."""
    experts: Experts | None = None
    """None: not a mixture of experts, or not served with its rows: `return_routed_experts` gives none."""
    indexer: Indexer | None = None
    """As `experts`, for `return_indexer_topk`."""
    latency: Latency = Latency()
    max_running_requests: int | None = Field(default=None, ge=1)
    """Requests that run at the same time; those beyond wait in a queue. Needs a clock."""
    max_queued_requests: int | None = Field(default=None, ge=1)
    """Requests that wait; those beyond are refused with 503. Needs a clock."""
    lora: dict[str, str] | None = None
    """Path by name of the adapters that are loaded at the start; None: the engine serves no adapters."""
    cache_report: bool = False
    """Tell cached ids in `usage`, as under `--enable-cache-report`."""
    incremental_streaming: bool = False
    """Streams of `/generate` tell only what is new, as far as the release does so under its flag for that
    (`--stream-output`, later `--incremental-streaming-output`)."""
    stream_interval: int = Field(default=1, ge=1)
    """Ids in a piece of a stream, as under `--stream-interval`; a request to `/generate` may say otherwise."""
    metrics: bool = False
    """Serve `/metrics`, and metrics in `meta_info`, as under `--enable-metrics`."""
    rules: tuple[ReplyRule, ...] = ()
    """First match wins; a request that none matches gets `default_reply`."""
    default_reply: Reply = Reply()

    @property
    def longest(self) -> int:
        """Ids of one request that there is room for."""
        return min(self.context_length, self.cache_tokens or self.context_length)

    @property
    def parsers(self) -> tuple[str | None, str | None]:
        """Names of the tool-call and the reasoning parser."""
        family = FAMILIES[self.tokenizer]
        tool = family.tool_format if self.tool_call_parser == "family" else self.tool_call_parser
        return tool, family.reasoning_format if self.reasoning_parser == "family" else self.reasoning_parser

    @field_validator("tokenizer")
    @classmethod
    def _known_family(cls, value: str) -> str:
        if value not in FAMILIES:
            raise ValueError(f"one of {sorted(FAMILIES)}")
        return value

    @model_validator(mode="after")
    def _limits_need_time(self) -> "EngineSettings":
        for field in ("max_running_requests", "max_queued_requests"):
            if getattr(self, field) is not None and self.latency.clock == "off":
                raise ValueError(f"{field} needs latency.clock virtual or real: with off no request ever waits")
        return self
