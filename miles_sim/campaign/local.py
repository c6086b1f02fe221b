"""The processes of this machine as a campaign's runner."""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice

from miles_sim.campaign.run import Runner
from miles_sim.campaign.settings import CampaignSettings
from miles_sim.campaign.unit import Broken, Unit, UnitPlayer
from miles_sim.verify.survival import play_ends
from miles_sim.workers import Workers

AHEAD = 4
"""Scenarios handed out for each process: none waits, and what finishes early is little."""


def local(workers: int) -> Runner:
    """`workers` processes; with one, this one. A process that dies is replaced, and what killed it is told."""

    def runner(settings: CampaignSettings, numbers: Sequence[int]) -> Iterator[Unit]:
        if workers == 1:
            with UnitPlayer(settings) as player:
                yield from map(player.play, numbers)
        else:
            yield from _spread(settings, iter(numbers), workers)

    return runner


def crashed(settings: CampaignSettings, number: int) -> Unit:
    """The unit of a scenario that took its process with it."""
    broken = Broken(contract=play_ends.id, message="the process that played it died", where="case", places=1)
    return Unit(number=number, session="", rollouts=settings.rollouts_of(number), broken=(broken,))


def _spread(settings: CampaignSettings, numbers: Iterator[int], workers: int) -> Iterator[Unit]:
    again: list[int] = []
    while True:
        with _pool(settings, workers) as pool:
            taken: set[int] = set()
            asked: set[Future[Unit]] = set()
            try:
                while True:
                    for number in islice(numbers, workers * AHEAD - len(asked)):
                        taken.add(number)  # before it is asked for: the pool may be broken by then
                        asked.add(pool.submit(_play, number))
                    if not asked:
                        return
                    for future in wait(asked, return_when=FIRST_COMPLETED).done:
                        unit = future.result()
                        asked.remove(future)
                        taken.remove(unit.number)
                        yield unit
            except BrokenProcessPool:
                again = sorted(taken)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        yield from (_alone(settings, number) for number in again)


def _alone(settings: CampaignSettings, number: int) -> Unit:
    """One of those that were under way when a process died, in a process of its own: the one that kills is found."""
    with _pool(settings, 1) as pool:
        try:
            return pool.submit(_play, number).result()
        except BrokenProcessPool:
            return crashed(settings, number)


def _pool(settings: CampaignSettings, workers: int) -> Workers:
    return Workers(workers, _begin, (settings.model_dump_json(),))


_player: UnitPlayer | Exception | None = None


def _begin(settings: str) -> None:
    """Of a process. Why it cannot play, `_play` says."""
    global _player
    logging.getLogger("miles_sim").addHandler(logging.NullHandler())  # faults are what it is for: nobody need be warned
    try:
        _player = UnitPlayer(CampaignSettings.model_validate_json(settings)).__enter__()
    except Exception as error:
        _player = error


def _play(number: int) -> Unit:
    if isinstance(_player, Exception):
        raise _player
    if _player is None:
        raise RuntimeError("a process of the campaign plays before it has begun")
    return _player.play(number)
