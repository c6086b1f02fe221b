"""Faults of the engine layer: what befalls the engine while a rollout depends on it.

What befalls a request under way stands in its reply; what befalls the engine between two requests is done through its
own control endpoints.
"""

from random import Random

from pydantic import Field

from miles_sim.document import Document
from miles_sim.faults.kind import NoParams, kind
from miles_sim.faults.kinds.http import refusal, replaced
from miles_sim.faults.kinds.model import spoiled
from miles_sim.faults.strike import Life, Strike
from miles_sim.reply import Reply, WeightUpdate

CACHE = ("prefix_cache_info", "cached_tokens")
VERSIONS = ("weight_versions",)
_ABORTED = "what was sampled until then is true and told to be aborted; nothing goes on from it"
_GONE = "nobody is there to answer: the agent is told so, and what it had is kept"
_LATER = "who asks before the engine is ready is told so, and is answered when he asks again"


class After(Document):
    """When."""

    after: int = Field(default=4, ge=0)
    """So many ids have been sampled."""


class Mid(Document):
    """When, within a reply."""

    after: int = Field(default=4, ge=1)
    """So many ids have been sampled, or a few more."""


class Updated(Mid):
    """When, and to what."""

    version: str = Field(default="updated", min_length=1)


class Version(Document):
    """To what."""

    version: str = Field(default="updated", min_length=1)


@kind("engine-abort", layer="engine", edge="model", verdict="degrade", reason=_ABORTED, params=After)
def _abort(params: After, reply: Reply) -> Reply:
    """The engine aborts the request under way after some ids."""
    return spoiled(reply, abort_after=params.after)


@kind(
    "engine-retract",
    layer="engine",
    edge="model",
    verdict="tolerate",
    reason="a request that loses its place and goes on says the same",
    params=Mid,
    counters=CACHE,
)
def _retract(params: Mid, reply: Reply) -> Reply:
    """The engine takes the request off the device for want of room, and resumes it."""
    return spoiled(reply, retract_after=params.after)


@kind(
    "engine-update-mid-reply",
    layer="engine",
    edge="model",
    verdict="tolerate",
    reason="the ids are as they were sampled; by which weights each was, the sample tells",
    params=Updated,
    counters=VERSIONS,
    radius="engine",
)
def _update_mid_reply(params: Updated, reply: Reply) -> Reply:
    """The weights are updated in place while a reply is sampled."""
    return spoiled(reply, update=WeightUpdate(after=params.after, version=params.version))


@kind(
    "engine-update-between",
    layer="engine",
    edge="engine",
    verdict="tolerate",
    reason="each reply is by the weights of its time, and the sample tells them in order",
    params=Version,
    counters=(*VERSIONS, *CACHE),
    radius="engine",
)
def _update_between(params: Version, random: Random) -> Strike:
    """The weights are updated between two turns."""
    return Strike(life=(Life("update_weights", weight_version=params.version),))


@kind(
    "engine-flush",
    layer="engine",
    edge="engine",
    verdict="tolerate",
    reason="the cache saves time and changes nothing that is said",
    counters=CACHE,
    radius="engine",
)
def _flush(params: NoParams, random: Random) -> Strike:
    """The prefix cache is emptied between two turns."""
    return Strike(life=(Life("flush_cache"),))


@kind(
    "engine-restart",
    layer="engine",
    edge="engine",
    verdict="reject",
    reason="the request under way is lost with the engine; the next one finds another with an empty cache",
    counters=CACHE,
    radius="engine",
)
def _restart(params: NoParams, random: Random) -> Strike:
    """The engine is restarted: the connection breaks, and what comes up again has an empty cache."""
    return Strike(deliveries=0, ending="reset", life=(Life("restart"),))


@kind(
    "engine-restart-generated",
    layer="engine",
    edge="engine",
    verdict="reject",
    reason="what was generated and never answered is in no sample",
    counters=CACHE,
    radius="engine",
)
def _restart_generated(params: NoParams, random: Random) -> Strike:
    """The engine is restarted when it has generated and not answered yet."""
    return Strike(ending="reset", life=(Life("restart", moment="after"),))


@kind("engine-death", layer="engine", edge="engine", verdict="reject", reason=_GONE, radius="engine")
def _death(params: NoParams, random: Random) -> Strike:
    """The engine dies, and does not come back."""
    return Strike(deliveries=0, ending="reset", life=(Life("die"),))


@kind("engine-starting", layer="engine", edge="engine", verdict="reject", reason=_LATER)
def _starting(params: NoParams, random: Random) -> Strike:
    """The engine loads its weights still, and listens on no port."""
    return Strike(deliveries=0, ending="refused")


@kind("engine-warming-up", layer="engine", edge="engine", verdict="reject", reason=_LATER)
def _warming_up(params: NoParams, random: Random) -> Strike:
    """The engine is up and not ready yet: status 503."""
    return replaced(
        lambda asked: refusal(asked, 503, "The server is not ready to handle requests.", "503"), delivered=False
    )
