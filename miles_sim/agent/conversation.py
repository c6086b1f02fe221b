"""The agent's side of one conversation: its messages, and which step each reply answered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """One request of the agent."""

    step: str
    kind: str
    """As in `ledger.Turn`."""
    parent: str | None
    """Step whose reply the request continues; None where it opens a new root."""
    body: bytes
    retry_of: str | None = None


@dataclass
class Conversation:
    """One line of messages. Grows at its end, but for compaction."""

    messages: list[Message]
    replies: list[tuple[str, int]] = field(default_factory=list)
    """Step and number of messages up to and with its reply, for each reply in `messages`."""
    opens: str | None = None
    """Kind of the first request, where it is not its step's own."""
    told: list[str] = field(default_factory=list)
    """What subagents reported; goes into the next user message."""
    request: Request | None = None
    """The latest one of this conversation's own."""
    omitted: frozenset[str] = frozenset()
    """Fields that its requests do not carry, though the plan has them."""
    tools: Sequence[Mapping[str, Any]] | None = None
    """In place of the plan's."""
    left: list[tuple[list[Message], list[tuple[str, int]]]] = field(default_factory=list)
    """Histories that were rewritten, with the replies in them that this one does not go on from."""

    @property
    def parent(self) -> str | None:
        return self.replies[-1][0] if self.replies else None

    @property
    def content(self) -> str:
        """Text of the latest reply."""
        return (self.messages[-1].get("content") if self.replies else None) or ""

    def answered(self, step: str, message: Mapping[str, Any]) -> None:
        """Takes a reply into the history as it came, less fields that are null or that no client sends back."""
        kept: Message = {"role": message.get("role", "assistant"), "content": message.get("content")}
        kept |= {k: message[k] for k in ("reasoning_content", "tool_calls") if message.get(k) is not None}
        self.messages.append(kept)
        self.replies.append((step, len(self.messages)))

    def rewrite(self, messages: Sequence[Message], omitted: frozenset[str] = frozenset()) -> None:
        """Puts other messages in the place of all: what stands behind the first that differs continues no reply, unless
        a history that was left before begins in the same way.
        A request without the tools that those before it had continues none either, nor does what comes after it: they
        stand in its prompt, as nothing else does that it may leave out."""
        if "tools" in omitted - self.omitted:
            self.replies, self.left = [], []
        self.left.append((self.messages, self.replies))
        self.messages = list(messages)
        self.omitted |= omitted
        found: dict[int, str] = {}
        for history, replies in self.left:
            kept = _shared(history, messages)
            found |= {end: step for step, end in replies if end <= kept}
        self.replies = [(found[end], end) for end in sorted(found)]

    def retool(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Other tools from here on: the next request continues no reply."""
        self.tools, self.replies, self.left = tools, [], []

    def withdraw(self) -> None:
        """Takes the latest reply back, so that another can stand in its place."""
        self.messages.pop()
        self.replies.pop()

    def fork(self, at: str | None) -> "Conversation":
        """A conversation with this one's history up to and with the reply to `at` (default: the latest)."""
        count = len(self.replies) if at is None else [step for step, _ in self.replies].index(at) + 1
        end = self.replies[count - 1][1]
        return Conversation(
            self.messages[:end],
            self.replies[:count],
            opens="subagent",
            omitted=self.omitted,
            tools=self.tools,
            left=[*self.left],
        )

    def cut(self, tail: int) -> None:
        """Keeps the system message and the last `tail` messages, less tool messages at their front."""
        system = self.messages[:1] if self.messages[0]["role"] == "system" else []
        kept = self.messages[len(system) :][-tail:] if tail else []
        while kept and kept[0]["role"] == "tool":
            del kept[0]
        self.messages, self.replies = system + kept, []


def _shared(left: Sequence[Message], right: Sequence[Message]) -> int:
    """How many messages both begin with."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(left), len(right)))
