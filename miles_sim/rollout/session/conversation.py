"""What linear and tree sessions have in common: a request takes a position, then commits or leaves no trace.

Both steps are plain functions that run on the server's event loop from start to end: nothing comes between the reading
and the writing of a session's state, and none of it waits for the engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from miles_sim.rollout.errors import MessageValidationError, TokenizationError, TruncatedGenerationError
from miles_sim.rollout.record import Record
from miles_sim.rollout.session.chat import ChatRequest
from miles_sim.rollout.session.completion import Completion
from miles_sim.rollout.session_metadata import all_ids
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ChatTokenizer

Messages = Sequence[Mapping[str, Any]]

UNFINISHED = frozenset({"length", "abort"})
"""Finish reasons of a reply that was cut: nothing goes on from it, as nothing behind it could be trained on."""


@dataclass(frozen=True, eq=False)
class Position:
    """Where a request stands in a session, and so what the engine is asked."""

    base: Record | None
    """The generation whose reply the request continues; None opens a root."""
    messages: Messages
    """The whole conversation, as stored up to `base`, as asked after it."""
    prompt_ids: list[int]
    tools: Messages | None
    template_options: Mapping[str, Any]
    offsets: Mapping[str, int]
    """First replay rows that the engine is asked for, under the request field's name; empty: from the first on."""
    commits: int
    """How many commits the session had seen."""
    requested_at: float
    """Unix seconds, decoration only."""


@dataclass(frozen=True)
class Commit:
    """A record, and the exchange with the engine that it was made of."""

    record: Record
    request: Mapping[str, Any]
    response: Mapping[str, Any]


class Conversation(Protocol):
    """The state of one session."""

    def position(self, asked: ChatRequest, *, requested_at: float) -> Position:
        """Where `asked` stands; an error if it cannot be served. Every position is released, committed or not."""
        ...

    def commit(self, position: Position, request: Mapping[str, Any], completion: Completion, *, at: float) -> Record:
        """Keep the generation that a position was answered with."""
        ...

    def release(self, position: Position) -> None:
        """The request of `position` is over."""
        ...

    def commits(self) -> Sequence[Commit]:
        """What is kept, in commit order."""
        ...


def history(record: Record) -> Messages:
    """The conversation that ends with a record's reply."""
    return (*record.request_messages, record.message)


def place(
    asked: ChatRequest,
    base: Record | None,
    *,
    settings: RolloutSettings,
    tokenizer: ChatTokenizer,
    commits: int,
    requested_at: float,
) -> Position:
    """The position of `asked` behind `base`, whose history its first messages are known to match."""
    if base is None:
        messages, tail = asked.messages, asked.messages
    else:
        before = history(base)
        tail = asked.messages[len(before) :]
        messages = (*before, *tail)
        if base.finish_reason in UNFINISHED:
            raise TruncatedGenerationError(
                f"messages: continue generation {base.seq}, which ended with finish_reason {base.finish_reason!r}; "
                "branch before it instead"
            )
        if not tail:
            raise MessageValidationError(
                f"messages: end with the reply of generation {base.seq}; at least one message must follow it"
            )
    stored = [] if base is None else all_ids(base)
    prompt_ids = _prompt_ids(asked, stored, tail, tokenizer)
    return Position(
        base=base,
        messages=messages,
        prompt_ids=prompt_ids,
        tools=asked.tools,
        template_options=asked.template_options,
        offsets=_offsets(base, stored, prompt_ids, settings),
        commits=commits,
        requested_at=requested_at,
    )


def _prompt_ids(asked: ChatRequest, stored: list[int], tail: Messages, tokenizer: ChatTokenizer) -> list[int]:
    options: dict[str, Any] = {"tools": asked.tools, "template_options": asked.template_options}
    try:
        prompt = tokenizer.extend(stored, tail, **options) if stored else tokenizer.render(tail, **options)
    except Exception as error:  # templates are code of others, and what they raise on a bad message is theirs
        raise MessageValidationError(f"messages: the chat template refuses them: {error}") from error
    kept = max(0, len(stored) - tokenizer.max_trim_tokens)
    if prompt[:kept] != stored[:kept]:
        raise TokenizationError(
            f"input_ids[{_common(prompt, stored)}]: differ from the {len(stored)} stored ids; "
            f"only the last {tokenizer.max_trim_tokens} may give way"
        )
    return prompt


def _offsets(
    base: Record | None, stored: Sequence[int], prompt: Sequence[int], settings: RolloutSettings
) -> dict[str, int]:
    """Rows that the base's engine reply told already are not asked for again: those of ids that stay as they are."""
    held = base is not None and base.meta_info.get("routed_experts") is not None
    if not settings.routing_replay or settings.replay_rows == "whole":
        return {}
    return {"routed_experts_start_len": min(len(stored) - 1, _common(prompt, stored)) if held else 0}


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix."""
    if a[: len(b)] == b:
        return len(b)
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def record(
    position: Position,
    completion: Completion,
    *,
    seq: int,
    committed_at: float,
) -> Record:
    """The record of a generation at a position."""
    return Record(
        seq=seq,
        parent=None if position.base is None else position.base.seq,
        prompt_ids=position.prompt_ids,
        output_ids=completion.output_ids,
        log_probs=completion.log_probs,
        finish_reason=completion.finish_reason,
        response_id=completion.response_id,
        meta_info=completion.meta_info,
        request_messages=position.messages,
        message=completion.message,
        tools=position.tools,
        requested_at=position.requested_at,
        committed_at=committed_at,
        request_options=position.template_options,
        replay_offsets=position.offsets,
    )
