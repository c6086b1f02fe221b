"""Errors that end an agent's run."""


class AgentError(RuntimeError):
    """Base of all errors of the simulated agent."""


class AgentCrash(AgentError):
    """The plan says that the agent crashes here."""


class AgentRequestError(AgentError):
    """A request was refused, or never answered."""

    def __init__(self, step: str, status: int, body: str) -> None:
        self.step = step
        self.status = status
        """HTTP status; 0 where the transport failed."""
        self.body = body
        what = f"HTTP {status}" if status else "no answer"
        super().__init__(f"step {step!r}: {what}: {body[:500]}")


class AgentReplyError(AgentError):
    """A reply that the plan cannot go on from: no chat completion, or without the tool calls it should answer."""
