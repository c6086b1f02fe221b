"""What the model says: shared by the engine's reply rules and the agent's plan."""

from typing import Any

from pydantic import Field

from miles_sim.document import Document


class ToolCall(Document):
    """One call that the model makes."""

    name: str = Field(min_length=1)
    arguments: dict[str, Any] = {}
    """Written into the reply as JSON, keys in this order."""


class Reply(Document):
    """One sampled reply. The request's own `max_tokens`, `stop` and context length still bound it."""

    tokens: int = Field(default=24, ge=0, le=100_000)
    """Ids to sample for the text before any tool call, the stop token not counted."""
    text: str | None = None
    """Exact text to say, in place of seeded words; `tokens` is then ignored."""
    tool_calls: tuple[ToolCall, ...] = ()
    abort_after: int | None = Field(default=None, ge=0)
    """The engine aborts the running request after this many ids: finish reason `abort`, partial output."""


class ReplyRule(Document):
    """Which requests get a `Reply`. Matched on content, so that the order of arrival never matters."""

    contains: str = Field(min_length=1)
    """Stands in the text of the request's last message (chat) or in the last 4,096 characters of its prompt."""
    attempt: int | None = Field(default=None, ge=0)
    """Only the n-th time that the very same thing is asked (0 = first); `None`: every time."""
    reply: Reply = Reply()
