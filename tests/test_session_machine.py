"""The public state machine holds for our own session server, and finds what is planted in it."""

from functools import partial
from typing import Any, Literal

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from miles_sim.rollout.session import registry, tree
from miles_sim.session_machine import reference_server, session_machine

FEW = settings(deadline=None, max_examples=6, stateful_step_count=14, phases=[Phase.generate])
MANY = settings(FEW, max_examples=60, report_multiple_bugs=False)


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


@pytest.mark.parametrize(
    ("plant", "told"),
    [
        (_forgets, "records are not what was answered"),
        (_one_for_all, "an open session is answered 404|records are not"),
    ],
)
def test_a_planted_defect_is_found(monkeypatch: pytest.MonkeyPatch, plant: Any, told: str) -> None:
    plant(monkeypatch)
    machine = session_machine(partial(reference_server, "v2"), session="v2")
    with pytest.raises(AssertionError, match=told):
        run_state_machine_as_test(machine, settings=MANY)
