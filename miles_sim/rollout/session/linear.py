"""A linear session (v1): one conversation that grows at its end and can take back one generation at most."""

from collections.abc import Mapping, Sequence
from typing import Any

from miles_sim.rollout.errors import MessageValidationError, NodeLimitError, SessionBusyError
from miles_sim.rollout.record import Record
from miles_sim.rollout.session.chat import ChatRequest
from miles_sim.rollout.session.completion import Completion
from miles_sim.rollout.session.conversation import Commit, Position, history, place, record
from miles_sim.rollout.session.matching import Matcher, Message, differing, same_reply, same_tools
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ChatTokenizer

MOST_TAKEN_BACK = 1
"""Generations that one request may take back, as in miles."""


class LinearConversation:
    """Generations in a row. A request is refused while another is under way: one of the two answers would be lost."""

    def __init__(self, settings: RolloutSettings, tokenizer: ChatTokenizer, matcher: Matcher) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        self._matcher = matcher
        self._commits: list[Commit] = []
        self._count = 0
        self._under_way: Position | None = None

    def position(self, asked: ChatRequest, *, requested_at: float) -> Position:
        """At the end, or before the last generation, which the commit then takes back."""
        if self._under_way is not None:
            raise SessionBusyError(
                f"session: a request of {len(self._under_way.messages)} messages is under way; "
                "a linear session serves one at a time"
            )
        kept = self._kept(asked.messages)
        limit = self._settings.max_nodes
        if kept >= limit:
            raise NodeLimitError(f"max_nodes: the session holds {kept} generations, of {limit} at most")
        base = self._commits[kept - 1].record if kept else None
        if base is not None and self._settings.tools_change == "branch" and not same_tools(base.tools, asked.tools):
            raise MessageValidationError(
                f"tools: not those that generation {base.seq} was asked with, and a linear session has no other prompt "
                "for them; send the same list, or set tools_change='keep'"
            )
        self._under_way = place(
            asked,
            base,
            settings=self._settings,
            tokenizer=self._tokenizer,
            commits=self._count,
            requested_at=requested_at,
        )
        return self._under_way

    def commit(self, position: Position, request: Mapping[str, Any], completion: Completion, *, at: float) -> Record:
        """Append the generation behind its base; what stood there is taken back."""
        made = record(position, completion, seq=self._count, committed_at=at)
        self._count += 1
        while self._commits and self._commits[-1].record is not position.base:
            self._commits.pop()
        self._commits.append(Commit(record=made, request=request, response=completion.response))
        return made

    def release(self, position: Position) -> None:
        if self._under_way is position:
            self._under_way = None

    def commits(self) -> Sequence[Commit]:
        return tuple(self._commits)

    def _kept(self, messages: Sequence[Message]) -> int:
        """How many generations the request builds on."""
        if not self._commits:
            return 0
        last = self._commits[-1].record
        stored = history(last)
        matched = self._matched(stored, messages)
        kept = len(self._commits)
        while kept and len(self._commits[kept - 1].record.request_messages) >= matched:
            kept -= 1
        taken_back = len(self._commits) - kept
        if taken_back > MOST_TAKEN_BACK:
            raise MessageValidationError(
                f"messages[{matched}]: leaves the stored history of {len(stored)} messages there, "
                f"which would take back {taken_back} generations; {MOST_TAKEN_BACK} at most"
            )
        if taken_back:
            _refuse_edited_reply(last, messages, matched)
        return kept

    def _matched(self, stored: Sequence[Message], replayed: Sequence[Message]) -> int:
        for i, (left, right) in enumerate(zip(stored, replayed, strict=False)):
            if not self._matcher.same(left, right):
                return i
        return min(len(stored), len(replayed))


def _refuse_edited_reply(last: Record, messages: Sequence[Message], matched: int) -> None:
    """A request that still carries the reply is no retry: taken back, what was generated would turn into prompt."""
    place_of_reply = len(last.request_messages)
    if matched == place_of_reply < len(messages) and messages[matched].get("role") == "assistant":
        fields = differing(last.message, messages[matched])
        raise MessageValidationError(
            f"messages[{matched}]: the reply of generation {last.seq} with other {' and '.join(fields)}; "
            "replay it as it was, or leave it out to ask again"
        )
    for i in range(matched, len(messages)):
        if same_reply(last.message, messages[i]):
            raise MessageValidationError(
                f"messages[{i}]: the reply of generation {last.seq} behind a history that differs at {matched}; "
                "leave it out to ask again"
            )
