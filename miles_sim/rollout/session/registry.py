"""The sessions that are open, and when one that nobody uses any more is closed."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from miles_sim.rollout.errors import SessionNotFoundError
from miles_sim.rollout.session.conversation import Conversation

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Session:
    """One session. `used_at`: loop time of its latest request's begin or end; `requests`: those under way;
    `response_ids`: those of all replies that were kept, if only for a while, or refused."""

    id: str
    conversation: Conversation
    used_at: float
    requests: int = 0
    response_ids: set[str] = field(default_factory=set)
    over: asyncio.Future[SessionNotFoundError] = field(default_factory=lambda: asyncio.Future())
    """Done when it is closed, with what is said from then on."""

    def not_found(self) -> SessionNotFoundError:
        return SessionNotFoundError(f"session_id: {self.id!r} is no open session")

    @property
    def closed(self) -> bool:
        return self.over.done()


class Sessions:
    """Open sessions by id, the least recently used first. All on one event loop, whose clock says how long one idles.

    `idle_timeout`: seconds after which a session without a request is closed; None: it stays until it is closed.
    """

    def __init__(self, new: Callable[[], Conversation], *, idle_timeout: float | None) -> None:
        self._new = new
        self._idle_timeout = idle_timeout
        self._open: dict[str, Session] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def create(self) -> Session:
        # An id is random, so that nobody finds a session that was not given to him; it never enters a result.
        session = Session(uuid.uuid4().hex, self._new(), used_at=_now())
        self._open[session.id] = session
        self._set_timer()
        return session

    def get(self, id: str) -> Session:
        """SessionNotFoundError for an id that is not open; it says so if the session may have expired."""
        session = self._open.get(id)
        if session is None:
            expires = self._idle_timeout is not None
            hint = f"; sessions close after {self._idle_timeout:g} s without a request" if expires else ""
            raise SessionNotFoundError(f"session_id: {id!r} is no open session{hint}")
        return session

    @contextmanager
    def used(self, id: str) -> Iterator[Session]:
        """The session `id`, which does not expire meanwhile."""
        session = self.get(id)
        session.requests += 1
        self._touch(session)
        try:
            yield session
        finally:
            session.requests -= 1
            self._touch(session)

    def close(self, session: Session) -> None:
        """What is under way in it ends; nothing finds it any more."""
        self._open.pop(session.id, None)
        if not session.closed:
            session.over.set_result(session.not_found())

    def close_all(self) -> None:
        for session in list(self._open.values()):
            self.close(session)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _touch(self, session: Session) -> None:
        session.used_at = _now()
        if self._open.pop(session.id, None) is not None:
            self._open[session.id] = session

    def _set_timer(self) -> None:
        """For the session that expires first. Others are used meanwhile, and looked at when their time comes."""
        if self._idle_timeout is not None and self._timer is None and self._open:
            first = next(iter(self._open.values()))
            self._timer = asyncio.get_running_loop().call_at(first.used_at + self._idle_timeout, self._expire)

    def _expire(self) -> None:
        self._timer = None
        limit = _now() - (self._idle_timeout or 0.0)
        while self._open and (first := next(iter(self._open.values()))).used_at <= limit:
            if first.requests:
                self._touch(first)
            else:
                logger.warning("session %s closed: no request for %g s", first.id, self._idle_timeout)
                self.close(first)
        self._set_timer()


def _now() -> float:
    return asyncio.get_running_loop().time()
