"""Faults of the consumer layer: who asked no longer waits for the answer."""

from random import Random

from miles_sim.faults.kind import NoParams, kind
from miles_sim.faults.strike import Strike

_UNREAD = "the agent never read the reply, and goes on as if there were none"
_ENDED = "who ends a rollout wants nothing of it: no sample comes out, the session is deleted, and the others go on"


@kind("consumer-timeout", layer="consumer", edge="session", verdict="reject", reason=_UNREAD)
def _timeout(params: NoParams, random: Random) -> Strike:
    """The agent's client runs out of patience just before the answer to its request comes."""
    return Strike(ending="stalled")


@kind("consumer-hangs-up-before", layer="consumer", edge="engine", verdict="reject", reason=_UNREAD)
def _hangs_up_before(params: NoParams, random: Random) -> Strike:
    """The agent hangs up while its request is on its way to the engine."""
    return Strike(deliveries=0, leaves="agent")


@kind("consumer-hangs-up-during", layer="consumer", edge="engine", verdict="reject", reason=_UNREAD)
def _hangs_up_during(params: NoParams, random: Random) -> Strike:
    """The agent hangs up when the engine has generated and its answer is on the way."""
    return Strike(leaves="agent")


@kind("consumer-hangs-up-after", layer="consumer", edge="session", verdict="reject", reason=_UNREAD)
def _hangs_up_after(params: NoParams, random: Random) -> Strike:
    """The agent hangs up when the session server has recorded the reply and is about to send it."""
    return Strike(leaves="agent")


@kind("consumer-cancels-asking", layer="consumer", edge="session", verdict="reject", reason=_ENDED, takes_all=True)
def _cancels_asking(params: NoParams, random: Random) -> Strike:
    """The rollout's task is cancelled when its agent is about to ask."""
    return Strike(deliveries=0, leaves="rollout")


@kind("consumer-cancels-generating", layer="consumer", edge="engine", verdict="reject", reason=_ENDED, takes_all=True)
def _cancels_generating(params: NoParams, random: Random) -> Strike:
    """The rollout's task is cancelled while the engine is at work for it."""
    return Strike(leaves="rollout")


@kind("consumer-cancels-answered", layer="consumer", edge="session", verdict="reject", reason=_ENDED, takes_all=True)
def _cancels_answered(params: NoParams, random: Random) -> Strike:
    """The rollout's task is cancelled when a reply is on its way to the agent."""
    return Strike(leaves="rollout")


@kind(
    "consumer-cancels-open", layer="consumer", edge="driver", at="open", verdict="reject", reason=_ENDED, takes_all=True
)
def _cancels_open(params: NoParams, random: Random) -> Strike:
    """The rollout's task is cancelled while its session is opened."""
    return Strike(leaves="rollout")


@kind(
    "consumer-cancels-collect",
    layer="consumer",
    edge="driver",
    at="collect",
    verdict="reject",
    reason=_ENDED,
    takes_all=True,
)
def _cancels_collect(params: NoParams, random: Random) -> Strike:
    """The rollout's task is cancelled while its samples are collected."""
    return Strike(leaves="rollout")


@kind(
    "consumer-cancels-delete",
    layer="consumer",
    edge="driver",
    at="delete",
    verdict="reject",
    reason=_ENDED,
    takes_all=True,
)
def _cancels_delete(params: NoParams, random: Random) -> Strike:
    """The rollout's task is cancelled while its session is deleted."""
    return Strike(leaves="rollout")


@kind(
    "consumer-two-collects",
    layer="consumer",
    edge="driver",
    at="collect",
    verdict="tolerate",
    reason="to collect changes nothing, so two at once get the same",
    copies=2,
)
def _two_collects(params: NoParams, random: Random) -> Strike:
    """The samples are collected twice at the same time."""
    return Strike(deliveries=2, at_once=True)
