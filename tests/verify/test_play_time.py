"""How long a play may take, and who sees to it."""

import pytest

from miles_sim.scenarios import library
from miles_sim.targets.base import PlayError
from miles_sim.targets.pool import TargetPool
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.targets.remote import RemoteTarget
from miles_sim.transport import LocalNetwork
from miles_sim.verify.play import play


class Bounded(ReferenceTarget):
    bounds_plays = True


async def test_a_play_that_takes_longer_than_it_may_is_given_up() -> None:
    network = LocalNetwork()
    with pytest.raises(PlayError, match="took more than 0 s"):
        await play(library.load("linear"), ReferenceTarget(network), session="v1", network=network, timeout=0)
    await network.aclose()


async def test_a_target_that_bounds_its_plays_itself_is_not_hurried() -> None:
    network = LocalNetwork()
    case = await play(library.load("linear"), Bounded(network), session="v1", network=network, timeout=0)
    await network.aclose()
    assert [rollout.error for rollout in case.observation.rollouts] == [None]


def test_a_pool_bounds_plays_where_each_of_its_members_does() -> None:
    remote = RemoteTarget("python", target="a:b")
    assert TargetPool([remote]).bounds_plays
    assert not TargetPool([remote, ReferenceTarget()]).bounds_plays
