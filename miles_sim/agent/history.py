"""What a plan's conversation stands on at each step, known before it is played."""

from dataclasses import dataclass, field

from miles_sim.reply import Reply


@dataclass
class History:
    """Roles of a conversation's messages (system left out), and the replies among them."""

    roles: list[str] = field(default_factory=list)
    replies: list[tuple[str, Reply, int]] = field(default_factory=list)
    """Step key, what it answers, number of messages up to and with it."""
    asks: bool = False
    """The conversation made a request of its own."""

    def add(self, key: str, reply: Reply, *roles: str) -> None:
        self.roles += [*roles, "assistant"]
        self.replies.append((key, reply, len(self.roles)))
        self.asks = True

    def fork(self, at: str) -> "History":
        count = [key for key, _, _ in self.replies].index(at) + 1
        return History(self.roles[: self.replies[count - 1][2]], self.replies[:count])

    def cut(self, tail: int) -> None:
        """Keeps the last `tail` messages, less tool messages at their front."""
        self.roles = self.roles[-tail:] if tail else []
        while self.roles and self.roles[0] == "tool":
            del self.roles[0]
        self.replies = []
