"""The steps of an agent plan. Each step that asks the model makes one request."""

from typing import Annotated, Any, Literal

from pydantic import Field

from miles_sim.document import Document
from miles_sim.reply import Reply

Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
MAX_DRAWS = 1024
"""Draws that one rollout's sampling seed leaves room for."""


class _Asks(Document):
    key: Key | None = None
    """Name of the step, unique in the plan. Default: its place, as `2` or `3.1` (first step inside step 3)."""
    reply: Reply = Reply()
    """What the engine answers."""


class Say(_Asks):
    """A user message, then a reply."""

    do: Literal["say"] = "say"
    text: str | None = None
    """Default: seeded words."""
    words: int = Field(default=8, ge=0, le=10_000)
    max_tokens: int | None = Field(default=None, ge=1)
    """Bound sent with this request, in place of the rollout's."""
    tag: Key | None = None
    """Tag written into the message, in place of the key: steps with one tag say the very same words."""
    draw: int = Field(default=0, ge=0, lt=MAX_DRAWS)
    """Added to the sampling seed: the same question asked twice at once draws two replies."""
    tools: tuple[dict[str, Any], ...] | None = None
    """In place of the plan's, from this request of the conversation on, which so opens a new root: tools stand in the
    prompt before all else. Only a tree session has room for it. None: as before."""


class Tool(_Asks):
    """A result for each tool call of the latest reply, then a reply."""

    do: Literal["tool"] = "tool"
    words: int = Field(default=6, ge=0, le=10_000)
    """Seeded words in each result."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Bound sent with this request, in place of the rollout's."""


class Compact(_Asks):
    """History is cut down and the conversation goes on from a new root: a user message, then a reply."""

    do: Literal["compact"] = "compact"
    keep: Literal["summary", "tail"] = "summary"
    """`summary`: system message and a summary. `tail`: system message and the last `tail` messages."""
    tail: int = Field(default=2, ge=1, le=1_000)
    """Messages kept, less tool messages at their front; fewer than there are."""
    words: int = Field(default=12, ge=0, le=10_000)
    max_tokens: int | None = Field(default=None, ge=1)
    """Bound sent with this request, in place of the rollout's."""


class Retry(_Asks):
    """The latest request of this conversation again, word for word; its new reply replaces the old one."""

    do: Literal["retry"] = "retry"


class Subagent(Document):
    """A conversation of its own: a fresh root, or a fork of this conversation's history."""

    do: Literal["subagent"] = "subagent"
    key: Key | None = None
    start: Literal["fresh", "fork"] = "fresh"
    at: Key | None = None
    """With `fork`: the step just after whose reply it forks. Default: the latest one."""
    returns: bool = False
    """Its last reply is told to this conversation with the next user message."""
    steps: tuple["Step", ...] = Field(min_length=1)


class Parallel(Document):
    """Subagents that run at the same time."""

    do: Literal["parallel"] = "parallel"
    key: Key | None = None
    branches: tuple[Subagent, ...] = Field(min_length=2)


class Crash(Document):
    """The agent raises here."""

    do: Literal["crash"] = "crash"
    key: Key | None = None
    message: str = "the agent crashed"


Ask = Say | Tool | Compact | Retry
Step = Annotated[Say | Tool | Compact | Retry | Subagent | Parallel | Crash, Field(discriminator="do")]
