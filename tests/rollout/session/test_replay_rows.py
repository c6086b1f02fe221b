"""Rows that a session holds are not asked for again, and come together all the same."""

import base64
from typing import Any

import numpy as np
import pytest

from miles_sim.rollout.sample import Sample
from miles_sim.rollout.wire import decode_samples
from miles_sim.tokenizer import ByteTokenizer


def with_rows(sessions: Any) -> None:
    """The next reply has the rows it was asked for; row r of request n holds `1000 * n + r`."""

    def add(reply: Any) -> None:
        body = sessions.engine.bodies[-1]
        meta = reply["choices"][0]["meta_info"]
        rows = np.arange(
            body.get("routed_experts_start_len", 0), meta["prompt_tokens"] + meta["completion_tokens"] - 1, dtype="<i4"
        )
        meta["routed_experts"] = base64.b64encode((rows + 1000 * len(sessions.engine.bodies)).tobytes()).decode()

    sessions.engine.change(add)


@pytest.mark.parametrize("session", ["v1", "v2"])
@pytest.mark.parametrize("family", ["chatml", "delimiter"])
async def test_rows_are_those_of_asking_for_all_of_them(opened: Any, user: Any, family: str, session: str) -> None:
    seen = []
    for replay_rows in ("whole", "additional"):
        sessions = await opened(
            ByteTokenizer(family), session=session, routing_replay=True, replay_rows=replay_rows, max_seq_len=1000
        )
        sessions.engine.requests.clear()
        asked = [user("one")]
        for text in ("two", "three"):
            with_rows(sessions)
            asked += [await sessions.say(*asked), {"role": "tool", "content": text}]
        with_rows(sessions)
        await sessions.say(*asked)
        payload = (await sessions.client.post(sessions.url + "/samples")).content
        (sample,) = decode_samples(payload, Sample(index=1), session=session).samples
        assert len(sample.rollout_routed_experts) == len(sample.tokens) - 1
        bodies = sessions.engine.bodies
        # A stop that gives way to the next message was sampled all the same, and the row before it told.
        held = [len(body["input_ids"]) + len(f"r{turn}") + 1 for turn, body in enumerate(bodies, start=1)]
        expected = [None] * 3 if replay_rows == "whole" else [0, *(n - 1 for n in held[:2])]
        assert [body.get("routed_experts_start_len") for body in bodies] == expected
        seen.append(sample.rollout_routed_experts[:, 0, 0].tolist())
    assert seen[0] == seen[1]


async def test_a_fork_asks_from_where_its_own_branch_left(opened: Any, user: Any) -> None:
    sessions = await opened(routing_replay=True, replay_rows="additional")
    for _ in range(4):
        with_rows(sessions)
    first = await sessions.say(user("one"))
    second = await sessions.say(user("one"), first, user("two"))
    await sessions.say(user("one"), first, user("aside"))
    await sessions.say(user("one"), first, user("two"), second, user("three"))
    zero, one, aside, three = (body["routed_experts_start_len"] for body in sessions.engine.bodies)
    assert zero == 0
    assert one == aside < three
    payload = (await sessions.client.post(sessions.url + "/samples")).content
    for sample in decode_samples(payload, Sample(index=1), session="v2").samples:
        assert len(sample.rollout_routed_experts) == len(sample.tokens) - 1


async def test_a_reply_without_rows_is_refused_and_all_are_asked_for_again(opened: Any, user: Any) -> None:
    sessions = await opened(routing_replay=True, replay_rows="additional")
    refused = await sessions.chat(user("one"))
    assert refused.status_code == 502
    assert "meta_info.routed_experts: missing, though it was asked for" in refused.text
    with_rows(sessions)
    await sessions.say(user("one"))
    assert [body["routed_experts_start_len"] for body in sessions.engine.bodies] == [0, 0]


async def test_a_template_option_of_an_offsets_name_moves_no_rows(opened: Any, user: Any) -> None:
    sessions = await opened(routing_replay=True)
    with_rows(sessions)
    await sessions.say(user("one"), chat_template_kwargs={"routed_experts_start_len": 4})
    answer = await sessions.client.post(sessions.url + "/samples")
    assert answer.status_code == 200, answer.text
    (sample,) = decode_samples(answer.content, Sample(index=1), session="v2").samples
    assert len(sample.rollout_routed_experts) == len(sample.tokens) - 1
