"""What the simulated agent does: a tree of steps. Each step that asks the model makes one request."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from miles_sim.document import Document
from miles_sim.reply import Reply

Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class _Asks(Document):
    key: Key | None = None
    """Name of the step, unique in the plan. Default: its place, as `2` or `3.1` (first step inside step 3)."""
    reply: Reply = Reply()
    """What the engine answers."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Bound sent with this request, in place of the rollout's."""


class Say(_Asks):
    """A user message, then a reply."""

    do: Literal["say"] = "say"
    text: str | None = None
    """Default: seeded words."""
    words: int = Field(default=8, ge=0, le=10_000)


class Tool(_Asks):
    """A result for each tool call of the latest reply, then a reply."""

    do: Literal["tool"] = "tool"
    words: int = Field(default=6, ge=0, le=10_000)
    """Seeded words in each result."""


class Compact(_Asks):
    """History is cut down and the conversation goes on from a new root: a user message, then a reply."""

    do: Literal["compact"] = "compact"
    keep: Literal["summary", "tail"] = "summary"
    """`summary`: system message and a summary. `tail`: system message and the last `tail` messages."""
    tail: int = Field(default=2, ge=1, le=1_000)
    words: int = Field(default=12, ge=0, le=10_000)


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


Step = Annotated[Say | Tool | Compact | Retry | Subagent | Parallel | Crash, Field(discriminator="do")]


class Plan(Document):
    """One agent run."""

    system: str | None = "You are a careful engineer. Use the tools."
    """System message; None for none."""
    tools: tuple[dict[str, Any], ...] = ()
    """Tool definitions in OpenAI's form, sent with every request."""
    steps: tuple[Step, ...] = ()
    returns: dict[str, Any] | None = None
    """What the agent function returns at the end: metadata for its samples, `reward` among it."""

    @model_validator(mode="after")
    def _resolvable(self) -> "Plan":
        seen: set[str] = set()
        for key, _ in walk(self.steps):
            if key in seen:
                raise ValueError(f"step key {key!r} stands twice")
            seen.add(key)
        _check(self.steps, prefix="", history=[])
        return self


def keyed(steps: tuple[Step, ...], prefix: str = "") -> Iterator[tuple[str, Step]]:
    """The steps of one conversation with their keys, without going into subagents."""
    for number, step in enumerate(steps, start=1):
        yield step.key or f"{prefix}{number}", step


def walk(steps: tuple[Step, ...], prefix: str = "") -> Iterator[tuple[str, Step]]:
    """All steps of a plan with their keys, outer before inner, in order."""
    for key, step in keyed(steps, prefix):
        yield key, step
        if isinstance(step, Subagent):
            yield from walk(step.steps, f"{key}.")
        elif isinstance(step, Parallel):
            for number, branch in enumerate(step.branches, start=1):
                name = branch.key or f"{key}.{number}"
                yield name, branch
                yield from walk(branch.steps, f"{name}.")


def _check(steps: tuple[Step, ...], *, prefix: str, history: list[tuple[str, Reply]]) -> None:
    """Refuse steps that refer to nothing. `history`: the replies this conversation stands on."""
    for key, step in keyed(steps, prefix):
        if isinstance(step, Subagent):
            _check_subagent(step, key, history)
        elif isinstance(step, Parallel):
            for number, branch in enumerate(step.branches, start=1):
                _check_subagent(branch, branch.key or f"{key}.{number}", history)
        elif isinstance(step, Retry):
            if not history:
                raise ValueError(f"step {key!r}: retry has no request before it to ask again")
            history = [*history[:-1], (key, step.reply)]
        elif isinstance(step, Tool):
            if not history or not history[-1][1].tool_calls:
                raise ValueError(f"step {key!r}: tool answers a reply with tool_calls, and there is none before it")
            history = [*history, (key, step.reply)]
        elif isinstance(step, Compact):
            if not history:
                raise ValueError(f"step {key!r}: compact has no history before it")
            history = [(key, step.reply)]
        elif isinstance(step, Say):
            history = [*history, (key, step.reply)]


def _check_subagent(step: Subagent, key: str, history: list[tuple[str, Reply]]) -> None:
    if step.at is not None and step.start != "fork":
        raise ValueError(f"step {key!r}: at goes with start: fork")
    inner: list[tuple[str, Reply]] = []
    if step.start == "fork":
        known = [name for name, _ in history]
        if not known:
            raise ValueError(f"step {key!r}: fork has no reply before it to fork from")
        if step.at is not None and step.at not in known:
            raise ValueError(f"step {key!r}: at: {step.at!r} is none of {known}")
        inner = history if step.at is None else history[: known.index(step.at) + 1]
    _check(step.steps, prefix=f"{key}.", history=inner)
