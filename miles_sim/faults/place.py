"""Where something is about to happen, named so that no order of arrival can change the name."""

from dataclasses import dataclass
from typing import Literal

Edge = Literal["engine", "session", "driver", "model", "agent"]
"""Where a kind strikes.

`engine`: a request on its way to the engine, from the session server or from the direct path.
`session`: a chat request of the agent on its way to the session server.
`driver`: a request of generate to the session server: `open`, `collect`, `delete`.
`model`: what the engine is going to say, before it says it.
`agent`: what the agent is about to do at a step, or to return at its end.
"""


@dataclass(frozen=True, order=True)
class Place:
    """One attempt at one thing."""

    rollout: int
    ordinal: int
    """Of the step among the plan's steps in order; on the driver's way 0, 1, 2 for open, collect, delete."""
    step: str
    attempt: int
