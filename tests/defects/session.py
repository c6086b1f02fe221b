"""Which leaves are kept, what crosses the wire, what is left behind."""

import copy
import dataclasses
from typing import Any

import pytest

from miles_sim.rollout import collect, generate, selection
from miles_sim.rollout.errors import MessageValidationError
from miles_sim.rollout.sample import Sample
from miles_sim.rollout.session import tree
from miles_sim.rollout.session.linear import LinearConversation
from miles_sim.rollout.session.server import SessionServer
from miles_sim.rollout.wire import SamplesReply

from .defect import all_asked_alike, defect, put


@defect("retry-middle/v2", "selection/retry-dropped", "tokens/trainable-exactly-once")
def retries_are_kept(m: pytest.MonkeyPatch) -> None:
    """Every leaf becomes a sample."""
    m.setitem(selection.PICKERS, "drop_retries", selection.keep_all)


@defect("subagent-fork-after/v2", "selection/subagent-kept", "tokens/trainable-exactly-once")
def any_later_sibling_is_a_retry(m: pytest.MonkeyPatch) -> None:
    """miles drop_retries: what was asked is not looked at."""
    all_asked_alike(m)


@defect("weight-version/v2", "selection/compaction-kept")
def a_new_root_is_a_retry(m: pytest.MonkeyPatch) -> None:
    """Roots are siblings, and the summary's root comes later."""
    all_asked_alike(m)


@defect("compaction-summary/v2", "selection/order-stable")
def leaves_come_in_any_order(m: pytest.MonkeyPatch) -> None:
    """The picker sorts by commit time, the earliest first."""
    m.setattr(selection, "_rank", lambda sample: -sample.metadata["leaf"]["node_id"])


@defect("truncated-extended/v2", "status/truncated-not-extended", "tokens/trainable-exactly-once")
def a_truncated_turn_is_extended(m: pytest.MonkeyPatch) -> None:
    """miles v1: the agent goes on from a cut reply, and the merge drops what comes after it."""
    place = tree.place

    def lenient(asked: Any, base: Any, **rest: Any) -> Any:
        return place(asked, None if base is None else dataclasses.replace(base, finish_reason="stop"), **rest)

    m.setattr(tree, "place", lenient)


@defect("linear/v2", "wire/agent-metadata-crosses")
def what_the_agent_returned_is_lost(m: pytest.MonkeyPatch) -> None:
    """The agent's reward is overwritten by nothing."""
    m.setattr(selection, "apply_agent", lambda samples, metadata: None)


@defect("linear/v2", "session/none-left-behind")
def sessions_are_not_deleted(m: pytest.MonkeyPatch) -> None:
    """Collecting is taken for the end of a session."""

    async def nothing(input: Any, session: str) -> None:
        return None

    m.setattr(generate, "_delete", nothing)


@defect("retry-first/v1", "session/requests-served")
def a_first_turn_cannot_be_asked_again(m: pytest.MonkeyPatch) -> None:
    """miles PR #1826: a rollback needs a generation to roll back to."""
    kept = LinearConversation._kept

    def needy(self: LinearConversation, messages: Any) -> int:
        found = kept(self, messages)
        if self._commits and not found:
            raise MessageValidationError("messages: there is no generation to go back to")
        return found

    m.setattr(LinearConversation, "_kept", needy)


@defect("linear/v2", "session/play-ends", crash="what cannot be stopped gives no observation at all")
def the_server_cannot_be_stopped(m: pytest.MonkeyPatch) -> None:
    """Shutting the session server down raises, and takes the samples of all rollouts with it."""

    async def raising(self: SessionServer) -> None:
        raise RuntimeError("a connection is busy")

    m.setattr(SessionServer, "aclose", raising)


@defect("crash-after-two/v2", "session/ends-in-samples", crash="the data are lost because the rollout raises")
def a_crashed_agent_ends_the_rollout(m: pytest.MonkeyPatch) -> None:
    """What was generated before the crash is thrown away with it."""
    run = generate._run_agent

    async def raising(input: Any, session: str) -> Any:
        returned, error = await run(input, session)
        if error is not None:
            raise RuntimeError(error["message"])
        return returned, error

    m.setattr(generate, "_run_agent", raising)


@defect("twins/v2", "session/siblings-in-parallel", "selection/subagent-kept")
def twins_are_retries(m: pytest.MonkeyPatch) -> None:
    """Requests that ran at the same time are taken for one after the other."""
    m.setattr(selection, "_twins", lambda a, b: False)


@defect("two-rollouts/v2", "session/isolation")
def one_collect_answers_all(m: pytest.MonkeyPatch) -> None:
    """A collected reply is handed to the next rollout."""
    collecting = generate._collect
    first: list[SamplesReply | None] = []

    async def cached(*args: Any) -> SamplesReply | None:
        reply = await collecting(*args)
        first.append(reply)
        return copy.deepcopy(first[0])

    m.setattr(generate, "_collect", cached)


@defect("linear/v1+v2", "session/v1-v2-parity")
def one_server_trims_what_the_other_keeps(m: pytest.MonkeyPatch) -> None:
    """The stop token of the last turn is left out of the loss under v2 alone."""

    def postprocess(samples: list[Sample], metadata: dict[str, Any], hook: Any) -> list[Sample]:
        for sample in samples:
            put(sample, loss_mask=[*(sample.loss_mask or [])[:-1], 0])
        return samples

    m.setattr(collect, "postprocess", postprocess)
