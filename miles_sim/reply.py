"""What the model says: shared by the engine's reply rules and the agent's plan."""

from typing import Any, Literal

from pydantic import Field, model_validator

from miles_sim.document import Document

Misbehaviour = Literal[
    "bad_json_open",
    "bad_json_quotes",
    "bad_json_comma",
    "bad_json_bare",
    "unknown_tool",
    "wrong_arguments",
    "same_call_id",
    "unclosed_think",
    "leaked_role",
    "empty",
    "repeated_specials",
    "white_space",
    "echo",
]
"""What a model does now and then.

`bad_json_open`: arguments lose their last brace; `_quotes`: single quotes; `_comma`: a comma before the brace;
`_bare`: keys without quotes. In a format without JSON (GLM) all four lose a closing tag.
`unknown_tool`: the first call names a tool that the request does not have.
`wrong_arguments`: arguments that no schema asked for, and none that one did.
`same_call_id`: all calls of the reply get one id (servers make up ids, but some pass on the model's).
`unclosed_think`: the thought does not end before the content does.
`leaked_role`: the opener of a message in the midst of the content, as a single special token.
`empty`: nothing but the stop token.
`repeated_specials`: a special token again and again before the end.
`white_space`: around the content.
`echo`: the end of the prompt in place of the content, less its special tokens.
A call that is cut by length needs no word of its own: `max_tokens` of the step does it.
"""
CALL_MISBEHAVIOUR = frozenset(
    {"bad_json_open", "bad_json_quotes", "bad_json_comma", "bad_json_bare", "unknown_tool", "wrong_arguments"}
)


class ToolCall(Document):
    """One call that the model makes."""

    name: str = Field(min_length=1)
    arguments: dict[str, Any] = {}
    """Written into the reply as JSON, keys in this order."""


class WeightUpdate(Document):
    """The engine's weights are updated in place while it generates, as a trainer does that does not wait for it."""

    after: int = Field(ge=1)
    """So many ids, or a few more, are by the weights before."""
    version: str = Field(default="updated", min_length=1)
    """The engine's from then on."""


class Reply(Document):
    """One sampled reply. The request's own `max_tokens`, `stop` and context length still bound it."""

    tokens: int = Field(default=24, ge=0, le=100_000)
    """Ids to sample for the text before any tool call, the stop token not counted."""
    text: str | None = None
    """Exact text to say, in place of seeded words; `tokens` is then ignored."""
    reasoning: int | str = Field(default=0, union_mode="left_to_right")
    """What is thought before: ids of seeded text, or exact text. Families that think open and close a thought even
    around nothing; in the others 0 or "" is no thought."""
    tool_calls: tuple[ToolCall, ...] = ()
    misbehave: Misbehaviour | None = None
    """How the reply goes wrong; the ledger has what was really sampled."""
    abort_after: int | None = Field(default=None, ge=0)
    """The engine aborts the running request after this many ids: finish reason `abort`, partial output."""
    retract_after: int | None = Field(default=None, ge=1)
    """After so many ids, or a few more, the engine takes the request off the device, for want of room; it is prefilled
    anew and goes on from what it had."""
    update: WeightUpdate | None = None
    """None: the weights stay."""

    @model_validator(mode="after")
    def _sayable(self) -> "Reply":
        if isinstance(self.reasoning, int) and not 0 <= self.reasoning <= 100_000:
            raise ValueError(f"reasoning: {self.reasoning!r} is not 0..100000 ids or a text")
        least = 2 if self.misbehave == "same_call_id" else int(self.misbehave in CALL_MISBEHAVIOUR)
        if len(self.tool_calls) < least:
            raise ValueError(f"misbehave: {self.misbehave} needs {least} or more tool_calls")
        if str(self.misbehave).startswith("bad_json") and not self.tool_calls[0].arguments:
            raise ValueError(f"misbehave: {self.misbehave} needs arguments in the first of tool_calls")
        return self


class ReplyRule(Document):
    """Which requests get a `Reply`. Matched on content, so that the order of arrival never matters."""

    contains: str = Field(min_length=1)
    """Stands in the text of the request's last message (chat) or in the last 4,096 characters of its prompt."""
    attempt: int | None = Field(default=None, ge=0)
    """Only the n-th time that the very same thing is asked (0 = first); `None`: every time."""
    seed: int | None = None
    """Only requests with this sampling seed; None: with any."""
    reply: Reply = Reply()
