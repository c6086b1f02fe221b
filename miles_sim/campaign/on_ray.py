"""A Ray cluster as a campaign's runner: the same units, wherever each was played. Needs the `ray` extra."""

import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from miles_sim.campaign.local import crashed
from miles_sim.campaign.run import Runner
from miles_sim.campaign.settings import CampaignError, CampaignSettings
from miles_sim.campaign.unit import Unit, UnitPlayer

TOGETHER = 4
"""Scenarios of one task."""
AHEAD = 2
"""Tasks handed out for each processor of the cluster."""
RETRIES = 5
"""How often a task is given to another worker when its own, or the whole node, dies. What dies so often is told."""


def on_ray(address: str) -> Runner:
    """The cluster at `address` (`auto`, `host:port`, `local` for one of this process's own).

    Its nodes need miles-sim installed; workers and nodes other than the head may die. CampaignError without Ray or
    without a cluster there.
    """

    def runner(settings: CampaignSettings, numbers: Sequence[int]) -> Iterator[Unit]:
        ray = _connected(address)
        try:
            yield from _spread(ray, settings, numbers)
        finally:
            ray.shutdown()

    return runner


def _connected(address: str) -> Any:
    try:
        import ray
    except ImportError:
        raise CampaignError("ray: is not installed: pip install 'miles-sim[ray]'") from None
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise CampaignError(f"ray: no cluster at {address!r}: {error}") from None
    return ray


def _spread(ray: Any, settings: CampaignSettings, numbers: Sequence[int]) -> Iterator[Unit]:
    told = settings.model_dump_json()
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(_play)
    batches = iter([numbers[at : at + TOGETHER] for at in range(0, len(numbers), TOGETHER)])
    asked: dict[Any, Sequence[int]] = {}
    while True:
        room = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1))) - len(asked)
        for batch in islice(batches, max(0, room)):
            asked[task.remote(told, list(batch))] = batch
        if not asked:
            return
        for done in ray.wait(list(asked), num_returns=1)[0]:
            yield from _units(ray, done, settings, asked.pop(done))


def _units(ray: Any, done: Any, settings: CampaignSettings, numbers: Sequence[int]) -> Iterator[Unit]:
    try:
        told = ray.get(done)
    except ray.exceptions.RayTaskError as error:
        raise error.as_instanceof_cause() from None
    except ray.exceptions.RayError:
        # No worker lived through it. The one that kills is found where each is by itself.
        if len(numbers) == 1:
            yield crashed(settings, numbers[0])
        else:
            alone = ray.remote(num_cpus=1, max_retries=RETRIES)(_play)
            refs = [(number, alone.remote(settings.model_dump_json(), [number])) for number in numbers]
            for number, ref in refs:
                yield from _units(ray, ref, settings, [number])
        return
    yield from (Unit.model_validate_json(text) for text in told)


_players: dict[str, UnitPlayer] = {}


def _play(told: str, numbers: list[int]) -> list[str]:
    """On a worker: the units, as JSON. Its target stays open for the next task."""
    if told not in _players:
        _players[told] = UnitPlayer(CampaignSettings.model_validate_json(told)).__enter__()
    return [_players[told].play(number).model_dump_json() for number in numbers]
