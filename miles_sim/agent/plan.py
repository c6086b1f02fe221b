"""What the simulated agent does: a tree of steps."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, model_validator

from miles_sim.agent.history import History
from miles_sim.agent.steps import Ask, Compact, Crash, Key, Parallel, Retry, Say, Step, Subagent, Tool
from miles_sim.document import Document
from miles_sim.reply import Reply

_TAG = re.compile(r"\[([A-Za-z0-9_.-]{1,64})\]")

__all__ = [
    "Ask",
    "Asked",
    "Compact",
    "Crash",
    "Key",
    "Parallel",
    "Plan",
    "Retry",
    "Say",
    "Step",
    "Subagent",
    "Tool",
    "asked",
    "branches",
    "keyed",
    "walk",
]


class Plan(Document):
    """One agent run."""

    system: str | None = "You are a careful engineer. Use the tools."
    """System message; None for none."""
    tools: tuple[dict[str, Any], ...] = ()
    """Tool definitions in OpenAI's form, sent with every request."""
    steps: tuple[Step, ...] = Field(default=())
    retries: int = Field(default=0, ge=0, le=10)
    """How often a request is made again, at once, where the transport failed or the status was 408, 409, 429 or from
    500 up: what OpenAI's client does (`max_retries`), less its pauses."""
    returns: dict[str, Any] | None = None
    """What the agent function returns at the end: metadata for its samples, `reward` among it."""

    @model_validator(mode="after")
    def _resolvable(self) -> "Plan":
        seen: set[str] = set()
        for key, _ in walk(self.steps):
            if key in seen:
                raise ValueError(f"step key {key!r} stands twice")
            seen.add(key)
        _check_steps(self.steps, prefix="", history=History())
        _check_tags(self.steps, keys=seen)
        return self


@dataclass(frozen=True)
class Asked:
    """One question of a plan: the step that asks it first, and what is answered each time."""

    key: str
    step: Say | Tool | Compact
    tag: str
    """Stands as `[tag]` in the last message of the request."""
    replies: list[Reply] = field(default_factory=list)
    """By attempt: that of the step, then those of its retries."""


def keyed(steps: tuple[Step, ...], prefix: str = "") -> Iterator[tuple[str, Step]]:
    """The steps of one conversation with their keys, without going into subagents."""
    for number, step in enumerate(steps, start=1):
        yield step.key or f"{prefix}{number}", step


def branches(key: str, step: Parallel) -> Iterator[tuple[str, Subagent]]:
    """The subagents of a parallel step with their keys."""
    for number, branch in enumerate(step.branches, start=1):
        yield branch.key or f"{key}.{number}", branch


def walk(steps: tuple[Step, ...], prefix: str = "") -> Iterator[tuple[str, Step]]:
    """All steps of a plan with their keys, outer before inner, in order."""
    for key, step in keyed(steps, prefix):
        yield key, step
        if isinstance(step, Subagent):
            yield from walk(step.steps, f"{key}.")
        elif isinstance(step, Parallel):
            for name, branch in branches(key, step):
                yield name, branch
                yield from walk(branch.steps, f"{name}.")


def asked(steps: tuple[Step, ...], prefix: str = "") -> Iterator[Asked]:
    """Every question of a plan, retries folded into what they ask again."""
    latest: Asked | None = None
    for key, step in keyed(steps, prefix):
        if isinstance(step, Subagent):
            yield from asked(step.steps, f"{key}.")
        elif isinstance(step, Parallel):
            for name, branch in branches(key, step):
                yield from asked(branch.steps, f"{name}.")
        elif isinstance(step, Retry) and latest is not None:
            latest.replies.append(step.reply)
        elif isinstance(step, Say | Tool | Compact):
            if latest is not None:
                yield latest
            tag = (step.tag if isinstance(step, Say) else None) or key
            latest = Asked(key, step, tag, [step.reply])
    if latest is not None:
        yield latest


def _check_steps(steps: tuple[Step, ...], *, prefix: str, history: History) -> None:
    """Refuse steps that refer to nothing."""
    for key, step in keyed(steps, prefix):
        if isinstance(step, Subagent):
            _check_subagent(step, key, history)
        elif isinstance(step, Parallel):
            for name, branch in branches(key, step):
                _check_subagent(branch, name, history)
        elif not isinstance(step, Crash):
            _check_ask(step, key, history)


def _check_ask(step: Ask, key: str, history: History) -> None:
    latest = history.replies[-1][1] if history.replies else None
    if isinstance(step, Say):
        if step.tools is not None:
            history.replies.clear()
        history.add(key, step.reply, "user")
    elif isinstance(step, Tool):
        if latest is None or not latest.tool_calls:
            raise ValueError(f"step {key!r}: tool answers a reply with tool_calls, and there is none before it")
        history.add(key, step.reply, *["tool"] * len(latest.tool_calls))
    elif isinstance(step, Retry):
        if not history.asks:
            raise ValueError(f"step {key!r}: retry has no request of this conversation before it to ask again")
        history.replies[-1] = (key, step.reply, len(history.roles))
    else:
        _check_compact(step, key, history)


def _check_compact(step: Compact, key: str, history: History) -> None:
    if not history.replies:
        raise ValueError(f"step {key!r}: compact has no history before it")
    if step.keep == "tail" and step.tail >= len(history.roles):
        raise ValueError(f"step {key!r}: tail: {step.tail} cuts nothing off the {len(history.roles)} messages so far")
    history.cut(step.tail if step.keep == "tail" else 0)
    history.add(key, step.reply, "user")


def _check_subagent(step: Subagent, key: str, history: History) -> None:
    if step.at is not None and step.start != "fork":
        raise ValueError(f"step {key!r}: at goes with start: fork")
    inner = History()
    if step.start == "fork":
        known = [name for name, _, _ in history.replies]
        if not known:
            raise ValueError(f"step {key!r}: fork has no reply before it to fork from")
        if step.at is not None and step.at not in known:
            raise ValueError(f"step {key!r}: at: {step.at!r} is none of {known}")
        inner = history.fork(step.at or known[-1])
    _check_steps(step.steps, prefix=f"{key}.", history=inner)


def _check_tags(steps: tuple[Step, ...], *, keys: set[str]) -> None:
    """Refuse what would make the engine take one question for another."""
    first: dict[str, Asked] = {}
    draws: set[tuple[str, int]] = set()
    for question in asked(steps):
        step, other = question.step, first.setdefault(question.tag, question)
        draw = step.draw if isinstance(step, Say) else 0
        if (question.tag, draw) in draws:
            raise ValueError(f"step {question.key!r}: tag {question.tag!r} with draw {draw} is that of another step")
        draws.add((question.tag, draw))
        if other is not question and not _same_question(question, other):
            raise ValueError(
                f"step {question.key!r}: shares tag {question.tag!r} with step {other.key!r}, "
                "so both must be say, with the same text, words and reply, and without retry"
            )
    for question in asked(steps):
        text = (question.step.text if isinstance(question.step, Say) else None) or ""
        strange = next((tag for tag in _TAG.findall(text) if tag in keys or tag in first), None)
        if strange is not None:
            raise ValueError(f"step {question.key!r}: text holds [{strange}], the tag of a step")


def _same_question(one: Asked, other: Asked) -> bool:
    a, b = one.step, other.step
    same = isinstance(a, Say) and isinstance(b, Say) and (a.text, a.words, a.reply) == (b.text, b.words, b.reply)
    return same and len(one.replies) == len(other.replies) == 1
