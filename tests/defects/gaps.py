"""Bugs just inside what a rule does not ask for: where a server cannot know better, and where it can."""

from collections.abc import Sequence
from typing import Any

import pytest

from miles_sim.rollout import generate, rewards, selection, train_data
from miles_sim.rollout.sample import Sample, Status
from miles_sim.rollout.session import completion, server
from miles_sim.rollout.session.linear import LinearConversation
from miles_sim.rollout.session.server import SessionServer
from miles_sim.rollout.session.tree import TreeConversation

from .defect import all_asked_alike, defect
from .faults import _unchecked


@defect("fault-retry-unread/v2", "selection/retry-dropped")
def an_answer_that_nobody_read_drops_nothing(m: pytest.MonkeyPatch) -> None:
    """The reply to a retry is recorded and lost on its way: it is kept, and the answer that it replaces beside it."""
    m.setitem(selection.PICKERS, "drop_retries", selection.keep_all)


@defect("fault-question-unread/v2", "tokens/trainable-exactly-once")
def the_first_of_two_answers_is_kept(m: pytest.MonkeyPatch) -> None:
    """Of a reply that was lost and the one that its client was given next, the lost one is trained on."""
    right = selection.drop_retries

    def reversed_in_time(samples: Sequence[Sample], metadata: Any) -> list[Sample]:
        nodes = [{**node, "id": -node["id"]} for node in metadata["tree"]["nodes"]]
        for sample in samples:
            sample.metadata["leaf"]["node_id"] *= -1
        kept = right(samples, {**metadata, "tree": {**metadata["tree"], "nodes": nodes}})
        for sample in samples:
            sample.metadata["leaf"]["node_id"] *= -1
        return kept

    m.setitem(selection.PICKERS, "drop_retries", reversed_in_time)


@defect("fault-question-unread/v2", "tokens/trainable-exactly-once")
def another_question_is_a_retry(m: pytest.MonkeyPatch) -> None:
    """Whatever is asked at the same place is taken for the same thing asked again."""
    all_asked_alike(m)


@defect("fault-compaction-unread/v2", "selection/order-stable")
def what_nobody_read_comes_last(m: pytest.MonkeyPatch) -> None:
    """Samples come in the order of commits: a lost reply, which is the latest, stands behind all others."""
    m.setattr(selection, "_rank", lambda sample: -sample.metadata["leaf"]["node_id"])


@defect("fault-refused-repeated/v2", "faults/verdict-as-declared")
def ids_of_refused_replies_are_forgotten(m: pytest.MonkeyPatch) -> None:
    """An id is remembered only of replies that were kept: a cache hands out that of a refused one unnoticed."""
    m.setattr(server, "ids_in", lambda body: ())


@defect("fault-copy-struck/v2", "faults/verdict-as-declared")
def a_copy_is_answered_from_a_cache(m: pytest.MonkeyPatch) -> None:
    """A request that comes twice gets its first answer again, though it answers another prompt."""
    send = SessionServer._send
    answers: dict[Any, Any] = {}

    async def cached(self: SessionServer, request: Any, session: Any, path: str, body: bytes) -> Any:
        key = (session.id, body)
        if key not in answers:
            answers[key] = await send(self, request, session, path, body)
        return answers[key]

    m.setattr(completion, "check_prompt", lambda *args: None)
    m.setattr(SessionServer, "_send", cached)
    m.setattr(SessionServer, "_recordable", _unchecked)


@defect("aborted-beside/v2", "train-data/rewards-per-rollout")
def an_aborted_branch_earns_what_its_siblings_did(m: pytest.MonkeyPatch) -> None:
    """A rollout's reward is given to all of its rows, to the one that was aborted and never scored, too."""
    raw = rewards.raw_rewards

    def shared(samples: Sequence[Sample], reward_key: str | None = None) -> list[float | None] | None:
        found = raw(samples, reward_key)
        earned = {s.effective_id: r for s, r in zip(samples, found or (), strict=False) if r is not None}
        return found and [earned.get(sample.effective_id) for sample in samples]

    m.setattr(train_data, "raw_rewards", shared)


@defect("aborted-beside/v2", "train-data/rewards-per-rollout")
def an_aborted_branch_silences_its_rollout(m: pytest.MonkeyPatch) -> None:
    """A rollout of which one row was aborted counts as one that never ran."""
    raw = rewards.raw_rewards

    def silent(samples: Sequence[Sample], reward_key: str | None = None) -> list[float | None] | None:
        aborted = {sample.effective_id for sample in samples if sample.status is Status.ABORTED}
        found = raw(samples, reward_key)
        return found and [None if s.effective_id in aborted else r for s, r in zip(samples, found, strict=True)]

    m.setattr(train_data, "raw_rewards", silent)


@defect("fault-session-chat-500/v2", "tokens/trainable-exactly-once")
def an_agent_that_failed_leaves_nothing(m: pytest.MonkeyPatch) -> None:
    """A rollout whose agent was refused once is given up, with all that it had been answered before."""
    run, collect = generate._run_agent, generate._collect
    failed: set[str] = set()

    async def noted(input: Any, session: str, keywords: Any) -> Any:
        returned, error = await run(input, session, keywords)
        failed.update([session] if error is not None else [])
        return returned, error

    async def given_up(input: Any, session: str, metadata: Any) -> Any:
        return None if session in failed else await collect(input, session, metadata)

    m.setattr(generate, "_run_agent", noted)
    m.setattr(generate, "_collect", given_up)


@defect("fault-question-unread/v1", "tokens/trainable-exactly-once")
def what_was_asked_beside_the_plan_stays(m: pytest.MonkeyPatch) -> None:
    """A linear session goes on from what its agent planned, and keeps what it had asked before in that place."""
    commit = LinearConversation.commit

    def first_in_place(self: LinearConversation, position: Any, *rest: Any, **named: Any) -> Any:
        before = list(self._commits)
        made = commit(self, position, *rest, **named)
        if len(before) == 2 and len(self._commits) == 2:
            self._commits[:] = before
        return made

    m.setattr(LinearConversation, "commit", first_in_place)


@defect("tools-change/v2", "tokens/prompt-canonical")
def tools_are_rendered_once(m: pytest.MonkeyPatch) -> None:
    """A request goes on from a prompt that shows the tools that its conversation began with."""
    paths = TreeConversation._paths_of
    m.setattr(TreeConversation, "_paths_of", lambda self, tools: paths(self, None))
