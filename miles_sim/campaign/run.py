"""Running a campaign: whoever plays the scenarios, they are stored and counted in the order of their numbers."""

import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from miles_sim.campaign.settings import CampaignError, CampaignSettings
from miles_sim.campaign.store import Store
from miles_sim.campaign.summary import Summary, Tally
from miles_sim.campaign.unit import Unit

Runner = Callable[[CampaignSettings, Sequence[int]], Iterator[Unit]]
"""Plays the scenarios of those numbers, and gives each once, in any order."""
Progress = Callable[[Tally], None]
"""Called after each scenario."""


def run(settings: CampaignSettings, folder: Path, runner: Runner, *, progress: Progress | None = None) -> Summary:
    """Play what `folder` does not hold yet; the summary of all of it.

    Killed at any moment, the same call goes on. CampaignError as `Store` raises it, and where `runner` leaves a
    scenario out.
    """
    tally = Tally()
    with Store(folder, settings) as store:
        for unit in store.units():
            tally.add(unit)
        before, begun = tally.rollouts, time.monotonic()
        for unit in in_order(runner(settings, range(store.done, settings.units)), store.done):
            store.append(unit)
            tally.add(unit)
            if progress is not None:
                progress(tally)
        if store.done != settings.units:
            raise CampaignError(f"{folder}: unit {store.done} of {settings.units} was never given by the runner")
        seconds = time.monotonic() - begun
    played = tally.rollouts - before
    return tally.summary().model_copy(
        update={
            "rollouts_per_second": round(played / seconds, 1) if played else None,
            "peak_rss_mb": round(_peak_rss_mb(), 1) if played else None,
        }
    )


def in_order(units: Iterable[Unit], first: int) -> Iterator[Unit]:
    """`units` from number `first` on, without gaps; one that comes early waits."""
    early: dict[int, Unit] = {}
    for unit in units:
        early[unit.number] = unit
        while first in early:
            yield early.pop(first)
            first += 1


def _peak_rss_mb() -> float:
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10  # bytes there, KiB elsewhere
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / unit
