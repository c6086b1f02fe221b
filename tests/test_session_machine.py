"""The public state machine holds for our own session server, and finds what is planted in it."""

from functools import partial
from typing import Any, Literal

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from miles_sim.rollout.session import answer, registry, server, tree
from miles_sim.session_machine import reference_server, session_machine

FEW = settings(deadline=None, max_examples=6, stateful_step_count=14, phases=[Phase.generate])
MANY = settings(FEW, max_examples=150, report_multiple_bugs=False, derandomize=True)


@pytest.mark.parametrize("session", ["v1", "v2"])
def test_our_session_server_keeps_what_it_answers(session: Literal["v1", "v2"]) -> None:
    run_state_machine_as_test(session_machine(partial(reference_server, session), session=session), settings=FEW)


def _forgets(m: pytest.MonkeyPatch) -> None:
    """An answer that is not the first of its session is not recorded."""
    commit = tree.TreeConversation.commit

    def changed(self: Any, *given: Any, **more: Any) -> Any:
        return None if self.commits() else commit(self, *given, **more)

    m.setattr(tree.TreeConversation, "commit", changed)


def _one_for_all(m: pytest.MonkeyPatch) -> None:
    """All clients share one session."""
    create = registry.Sessions.create

    def changed(self: Any) -> Any:
        there = list(self._open.values())
        return there[0] if there else create(self)

    m.setattr(registry.Sessions, "create", changed)


def _chunked(m: pytest.MonkeyPatch, **changed: Any) -> None:
    """What a streaming client is told differs from what is recorded."""
    chunk = answer._chunk
    m.setattr(answer, "_chunk", lambda reply: chunk({**reply, **changed}))


def _cut_text(m: pytest.MonkeyPatch) -> None:
    """A stream leaves the end of the text out."""
    chunk = answer._chunk

    def changed(reply: Any) -> Any:
        found = chunk(reply)
        found["choices"][0]["delta"]["content"] = found["choices"][0]["delta"]["content"][:-1]
        return found

    m.setattr(answer, "_chunk", changed)


def _endless(m: pytest.MonkeyPatch) -> None:
    """The last chunk gives no reason why it is the last."""
    chunk = answer._chunk

    def changed(reply: Any) -> Any:
        found = chunk(reply)
        found["choices"][0]["finish_reason"] = None
        return found

    m.setattr(answer, "_chunk", changed)


def _shown_otherwise(m: pytest.MonkeyPatch) -> None:
    """The session shows each request without what its client said first."""
    dump = server._dump

    def changed(commit: Any) -> Any:
        shown = dump(commit)
        return {**shown, "request": {**shown["request"], "messages": shown["request"]["messages"][1:]}}

    m.setattr(server, "_dump", changed)


def _first_tools(m: pytest.MonkeyPatch) -> None:
    """Tools are rendered once: a request that has others goes on from a prompt that has not."""
    paths = tree.TreeConversation._paths_of
    m.setattr(tree.TreeConversation, "_paths_of", lambda self, tools: paths(self, None))


@pytest.mark.parametrize(
    ("plant", "told"),
    [
        (partial(_chunked, usage=None), "a client was told another usage than is recorded"),
        (_cut_text, "a client was told another text than is recorded"),
        (_endless, "a client was told another finish reason than is recorded"),
        (_shown_otherwise, "a record's request is not what its client asked"),
        (_first_tools, "the prompt has other tools than the request"),
        (_forgets, "records are not what was answered"),
        (_one_for_all, "an open session is answered 404|records are not"),
    ],
)
def test_a_planted_defect_is_found(monkeypatch: pytest.MonkeyPatch, plant: Any, told: str) -> None:
    plant(monkeypatch)
    machine = session_machine(partial(reference_server, "v2"), session="v2")
    with pytest.raises(AssertionError, match=told):
        run_state_machine_as_test(machine, settings=MANY)
