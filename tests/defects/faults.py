"""What goes wrong only when something else does."""

from typing import Any

import pytest

from miles_sim.rollout import engine_reply, generate
from miles_sim.rollout.errors import UpstreamTransportError
from miles_sim.rollout.session import completion
from miles_sim.rollout.session.linear import LinearConversation
from miles_sim.rollout.session.server import SessionServer

from .defect import defect


@defect("fault-payload-logprobs/v2", "faults/nothing-false")
def a_positive_logprob_is_trained_on(m: pytest.MonkeyPatch) -> None:
    """miles reads `output_token_logprobs` as they come: what no probability can be goes into the loss."""
    m.setattr(engine_reply, "LARGEST_LOGPROB", 1e9)


@defect("fault-payload-tokens/v2", "faults/nothing-false")
def ids_are_made_of_whatever_comes(m: pytest.MonkeyPatch) -> None:
    """Ids that are no whole numbers are taken for 0, and the reply is recorded."""
    read = engine_reply.read_sampled

    def lenient(meta_info: Any) -> Any:
        entries = meta_info.get("output_token_logprobs")
        if not isinstance(entries, list):
            return read(meta_info)
        whole = [[e[0], e[1] if type(e[1]) is int and e[1] >= 0 else 0, *e[2:]] for e in entries]
        return read({**meta_info, "output_token_logprobs": whole})

    m.setattr(completion, "read_sampled", lenient)


@defect("fault-retried/v2", "faults/verdict-as-declared")
def one_id_twice_is_two_replies(m: pytest.MonkeyPatch) -> None:
    """A cache on the way gives an earlier reply's id to another one, and nobody finds out which was which."""
    m.setattr(SessionServer, "_recordable", _unchecked)


def _unchecked(server: SessionServer, session: Any, position: Any, answer: Any) -> completion.Completion:
    return completion.read_completion(answer.body, prompt_tokens=len(position.prompt_ids))


@defect("fault-transport/v2", "faults/blast-radius")
def one_lost_answer_closes_all_sessions(m: pytest.MonkeyPatch) -> None:
    """A server that takes a broken connection for the end of its engine gives up every rollout at once."""
    send = SessionServer._send

    async def gives_up(self: SessionServer, *args: Any) -> Any:
        try:
            return await send(self, *args)
        except UpstreamTransportError:
            self._sessions.close_all()
            raise

    m.setattr(SessionServer, "_send", gives_up)


@defect("fault-retried/v1", "faults/all-finish")
def a_request_that_failed_blocks_its_session(m: pytest.MonkeyPatch) -> None:
    """miles PR #817: the lock of a session is let go of only where its request was answered."""
    release = LinearConversation.release

    def only_when_answered(self: LinearConversation, position: Any) -> None:
        if any(commit.record.prompt_ids == position.prompt_ids for commit in self.commits()):
            release(self, position)

    m.setattr(LinearConversation, "release", only_when_answered)


@defect("fault-session-delete-404/v2", "faults/fired", "session/none-left-behind")
def nobody_deletes_a_session(m: pytest.MonkeyPatch) -> None:
    """What would go wrong cannot: the request is never made."""

    async def forgotten(input: Any, session: str) -> None:
        pass

    m.setattr(generate, "_delete", forgotten)
