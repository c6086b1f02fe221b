"""Bugs that need an outage to show: a lost collect, an aborted row, a reply of two choices."""

from typing import Any

import orjson
import pytest

from miles_sim.rollout import generate, rewards, train_data
from miles_sim.rollout.sample import Sample, Status
from miles_sim.rollout.session import server
from miles_sim.rollout.session.server import SessionServer

from .defect import defect


@defect("aborted-in-group/v2", "train-data/rewards-per-rollout")
def an_aborted_rollout_pulls_the_baseline(m: pytest.MonkeyPatch) -> None:
    """verl PR 7970, miles: the row of a rollout that never ran counts as a reward of 0 for its prompt."""
    group = rewards.group_rewards

    def with_aborted(samples: Any, raw: Any, *rest: Any) -> Any:
        return group(samples, [0.0 if reward is None else reward for reward in raw], *rest)

    m.setattr(rewards, "group_rewards", with_aborted)


@defect(
    "aborted-first/v2",
    "identity/accepted-downstream",
    crash="arithmetic on a reward that is not there raises before any datum is made",
)
def an_aborted_row_stops_the_step(m: pytest.MonkeyPatch) -> None:
    """miles of August 2026: None is taken for a number where rewards are made into advantages."""
    right = train_data.normalized

    def careless(samples: list[Sample], raw: Any, *rest: Any, **named: Any) -> Any:
        if any(sample.status is Status.ABORTED for sample in samples):
            raise TypeError("unsupported operand type(s) for -: 'NoneType' and 'float'")
        return right(samples, raw, *rest, **named)

    m.setattr(train_data, "normalized", careless)


@defect("fault-payload-shape/v2", "faults/verdict-as-declared")
def the_first_of_several_choices_is_kept(m: pytest.MonkeyPatch) -> None:
    """miles: of two choices one is recorded, and the agent may go on from the other."""
    read = server.read_completion

    def first(body: bytes, **named: Any) -> Any:
        document = orjson.loads(body)
        if isinstance(document, dict) and isinstance(document.get("choices"), list) and len(document["choices"]) > 1:
            body = orjson.dumps({**document, "choices": document["choices"][:1]})
        return read(body, **named)

    m.setattr(server, "read_completion", first)


@defect(
    "fault-session-collect-lost-once/v2",
    "session/collect-survived",
    crash="the records are gone with the session, and no datum is made",
)
def collecting_ends_a_session(m: pytest.MonkeyPatch) -> None:
    """miles before PR #485: a collect takes the records away, and one that was lost on its way cannot be made again."""
    collect = SessionServer._samples

    async def last(self: SessionServer, request: Any) -> Any:
        response = await collect(self, request)
        self._sessions.close(self._sessions.get(request.path_params["id"]))
        return response

    m.setattr(SessionServer, "_samples", last)


@defect(
    "fault-session-collect-lost/v2",
    "session/collect-survived",
    crash="what broke while collecting raises in place of an aborted sample",
)
def a_lost_collect_ends_the_rollout(m: pytest.MonkeyPatch) -> None:
    """miles before PR #2544: only a timeout is looked for, and a broken connection goes through to the trainer."""
    collect = generate._collect

    async def raising(*arguments: Any) -> Any:
        reply = await collect(*arguments)
        if reply is None:
            raise ConnectionError("Server disconnected")
        return reply

    m.setattr(generate, "_collect", raising)
