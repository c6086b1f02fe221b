"""Whatever the order in which chats start, end and fail, and the session ends: nothing is answered and then lost."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.responses import Response

from miles_sim.rollout.record import Record
from miles_sim.rollout.session.server import SessionServer
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ByteTokenizer
from miles_sim.transport import LocalNetwork

Step = tuple[str, int, str]
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(st.just("ask"), st.integers(0, 5), st.sampled_from("ab"))
    | st.tuples(st.just("end"), st.integers(0, 3), st.sampled_from(["fine", "fine", "refused", "unreadable"]))
    | st.tuples(st.just("leave"), st.integers(0, 3), st.just("")),
    max_size=16,
)


class Play:
    """Chats of one session, each under way until it is told to end."""

    def __init__(self, engine: Any, server: SessionServer, client: httpx.AsyncClient, session: str) -> None:
        self.engine, self.server, self.client, self.session = engine, server, client, session
        self.histories: list[list[dict[str, Any]]] = [[]]
        self.under_way: list[tuple[asyncio.Task[httpx.Response], Any, list[dict[str, Any]]]] = []
        self.answered: list[str] = []
        self.refused: list[int] = []
        self.deleted = False

    def records(self) -> list[Record]:
        session = self.server._sessions._open.get(self.session)
        return [] if session is None else [commit.record for commit in session.conversation.commits()]

    async def ask(self, which: int, text: str) -> None:
        messages = [*self.histories[-1 - which % len(self.histories)], {"role": "user", "content": text}]
        hold = self.engine.hold()
        chat = self.client.post(f"/sessions/{self.session}/v1/chat/completions", json={"messages": messages})
        task = asyncio.create_task(chat)
        arrived = asyncio.create_task(hold.arrived.wait())
        await asyncio.wait([task, arrived], return_when=asyncio.FIRST_COMPLETED)
        if arrived.done():
            self.under_way.append((task, hold, messages))
            return
        arrived.cancel()
        self.engine.holds.remove(hold)
        self.refused.append((await task).status_code)

    async def end(self, which: int, how: str) -> None:
        if not self.under_way:
            return
        before = self.records()
        task, hold, messages = self.under_way.pop(which % len(self.under_way))
        hold.instead = {"refused": Response("no", status_code=400), "unreadable": Response("{}")}.get(how)
        hold.released.set()
        response = await task
        if response.status_code == 200:
            reply = response.json()
            self.answered.append(reply["id"])
            self.histories.append([*messages, reply["choices"][0]["message"]])
            assert self.records()[-1].response_id == reply["id"]
        else:
            assert response.status_code == (404 if self.deleted else {"refused": 400, "unreadable": 502}[how])
            assert self.records() == before

    async def leave(self, which: int, _: str) -> None:
        if self.under_way:
            task, hold, _messages = self.under_way.pop(which % len(self.under_way))
            task.cancel()
            await asyncio.wait([task])
            assert hold.abandoned.is_set()

    async def delete(self) -> None:
        assert (await self.client.delete(f"/sessions/{self.session}")).status_code == 204
        self.deleted = True


async def play(
    engine: Any, steps: list[Step], session: Any, delete_at: int | None, check: Callable[[Play], None]
) -> None:
    async with LocalNetwork() as network:
        network.mount("engine", engine.app)
        server = SessionServer(RolloutSettings(session=session), ByteTokenizer(), "http://engine", transport=network)
        network.mount("sessions", server.app)
        async with httpx.AsyncClient(base_url="http://sessions", transport=network, trust_env=False) as client:
            played = Play(engine, server, client, (await client.post("/sessions")).json()["session_id"])
            for number, (step, which, how) in enumerate(steps):
                if number == delete_at:
                    await played.delete()
                await getattr(played, step)(which, how)
                _sound(played.records())
            while played.under_way:
                await played.end(0, "fine")
            _sound(played.records())
            check(played)
            assert server.requests_open == 0


def _sound(records: list[Record]) -> None:
    by_seq = {made.seq: made for made in records}
    assert [*by_seq] == sorted(by_seq)
    for made in records:
        assert len(made.output_ids) == len(made.log_probs)
        for twin in made.concurrent_with:
            assert by_seq[twin].parent == made.parent
            assert made.seq in by_seq[twin].concurrent_with
        if made.parent is not None:
            parent = by_seq[made.parent]
            stored = [*parent.prompt_ids, *parent.output_ids]
            told = [*parent.request_messages, parent.message]
            assert list(made.prompt_ids)[: len(stored)] == stored
            assert list(made.request_messages)[: len(told)] == told


@pytest.mark.parametrize("session", ["v1", "v2"])
@settings(deadline=None, max_examples=60)
@given(steps=STEPS, delete_at=st.none() | st.integers(0, 16))
def test_what_is_answered_is_kept_and_what_fails_leaves_no_trace(
    new_engine: Any, session: str, steps: list[Step], delete_at: int | None
) -> None:
    def check(played: Play) -> None:
        if played.deleted:
            assert played.records() == []
            assert set(played.refused) <= {404} | ({400, 409} if session == "v1" else set())
            return
        kept = [made.response_id for made in played.records()]
        if session == "v2":
            assert kept == played.answered
            assert played.refused == []
        else:
            # What was taken back is gone; what is left stands in the order in which it was answered.
            assert [answer for answer in played.answered if answer in set(kept)] == kept
            assert kept[-1:] == played.answered[-1:]
            assert set(played.refused) <= {400, 409}

    asyncio.run(play(new_engine(), steps, session, delete_at, check))
