"""Plays that are not alike: what depends on who came first, on what was left behind, on when a session was closed."""

import dataclasses
import itertools
from typing import Any

import pytest

from miles_sim.engine import chat, seeding
from miles_sim.rollout import generate
from miles_sim.rollout.errors import NodeLimitError
from miles_sim.rollout.session.registry import Session, Sessions
from miles_sim.rollout.session.tree import TreeConversation

from .defect import after_joining, defect, put


@defect("played-again/v2", "engine/determinism")
def replies_are_drawn_anew(m: pytest.MonkeyPatch) -> None:
    """The simulator's own: chance goes on from where the last play left it."""
    drawn = itertools.count()
    m.setattr(seeding, "reply_key", lambda seed, asked, attempt: next(drawn).to_bytes(16, "big"))


@defect("one-by-one/v2", "engine/concurrency-order-free")
def the_first_to_ask_is_answered_otherwise(m: pytest.MonkeyPatch) -> None:
    """The simulator's own: a reply depends on how many were given before it."""
    right, before = seeding.reply_key, itertools.count()
    m.setattr(seeding, "reply_key", lambda seed, asked, attempt: right(seed, asked, attempt + next(before)))


@defect("played-again/v1", "engine/determinism")
def siblings_share_one_budget(m: pytest.MonkeyPatch) -> None:
    """miles 3c6862c99: one dictionary of sampling parameters, of which each rollout takes its own share away."""
    keywords = generate.request_kwargs
    taken = itertools.count()

    def smaller(parameters: Any) -> dict[str, Any]:
        right = keywords(parameters)
        return {**right, "max_tokens": max(1, right["max_tokens"] - 6 * next(taken))}

    m.setattr(generate, "request_kwargs", smaller)


@defect("played-again/v2", "session/order-free", "counters/weight-versions-in-order")
def a_list_is_shared_by_all_samples(m: pytest.MonkeyPatch) -> None:
    """A mutable default: what earlier rollouts appended stands in later ones."""
    shared: list[str] = []
    after_joining(m, lambda sample, tokenizer: put(sample, weight_versions=shared))


@defect("closing-race/v2", "session/closing-race", "session/none-left-behind")
def a_closed_session_goes_on(m: pytest.MonkeyPatch) -> None:
    """miles before PR #817: a delete takes the session off the list, and what is under way in it knows nothing."""

    def forget(self: Sessions, session: Session) -> None:
        self._open.pop(session.id, None)

    m.setattr(Sessions, "close", forget)


@defect("node-cap/v2", "session/node-cap")
def the_cap_is_seen_behind_the_engine(m: pytest.MonkeyPatch) -> None:
    """miles session v2: a full session is noticed when the reply is to be stored, after the engine has made it."""
    position, commit = TreeConversation.position, TreeConversation.commit

    def roomy(self: TreeConversation, *arguments: Any, **keywords: Any) -> Any:
        settings = self._settings
        self._settings = dataclasses.replace(settings, max_nodes=1_000_000)
        try:
            return position(self, *arguments, **keywords)
        finally:
            self._settings = settings

    def late(self: TreeConversation, *arguments: Any, **keywords: Any) -> Any:
        if len(self._nodes) >= self._settings.max_nodes:
            raise NodeLimitError("max_nodes: the session is full")
        return commit(self, *arguments, **keywords)

    m.setattr(TreeConversation, "position", roomy)
    m.setattr(TreeConversation, "commit", late)


@defect("linear/v1", "engine/keys-per-profile")
def answers_have_the_readers_key_names(m: pytest.MonkeyPatch) -> None:
    """miles' mock of the engine: counters under the names that miles reads, which no release of today sends."""
    right = chat.meta_info
    renamed = {"spec_accepted_drafts": "spec_accept_token_num", "spec_proposed_drafts": "spec_draft_token_num"}

    def mocked(*arguments: Any, **keywords: Any) -> dict[str, Any]:
        return {renamed.get(key, key): value for key, value in right(*arguments, **keywords).items()}

    m.setattr(chat, "meta_info", mocked)
