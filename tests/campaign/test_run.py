"""The same campaign comes out alike, whoever plays it and however often it is stopped."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

import miles_sim.campaign.local
from miles_sim.campaign.local import local
from miles_sim.campaign.run import run
from miles_sim.campaign.settings import CampaignError, CampaignSettings
from miles_sim.campaign.summary import Summary, Tally
from miles_sim.campaign.unit import Unit, UnitPlayer
from miles_sim.targets.catalog import UnknownTargetError

SETTINGS = CampaignSettings(seed=1, rollouts=20, per_unit=4, faults=("http-*",), contracts=("faults/*", "session/*"))
MEASURED = {"rollouts_per_second", "peak_rss_mb"}


def told(summary: Summary) -> dict[str, object]:
    return summary.model_dump(exclude=MEASURED)


def lines(folder: Path) -> bytes:
    return (folder / "units.jsonl").read_bytes()


def test_any_number_of_processes_stores_the_same_bytes(tmp_path: Path) -> None:
    one = run(SETTINGS, tmp_path / "1", local(1))
    two = run(SETTINGS, tmp_path / "2", local(2))
    assert lines(tmp_path / "1") == lines(tmp_path / "2")
    assert told(one) == told(two)
    assert one.rollouts == 20
    assert one.faults_fired > 0


def test_a_campaign_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = run(SETTINGS, tmp_path / "whole", local(1))
    played: list[int] = []

    def counted(settings: CampaignSettings, numbers: Sequence[int]) -> Iterator[Unit]:
        for unit in local(1)(settings, numbers):
            played.append(unit.number)
            yield unit

    class Stop(Exception):
        pass

    def stop(tally: Tally) -> None:
        if tally.scenarios == 2:
            raise Stop

    with pytest.raises(Stop):
        run(SETTINGS, tmp_path / "parts", counted, progress=stop)
    resumed = run(SETTINGS, tmp_path / "parts", counted)
    assert played == [0, 1, 2, 3, 4]
    assert lines(tmp_path / "parts") == lines(tmp_path / "whole")
    assert told(resumed) == told(whole)


def test_a_campaign_that_was_killed_loses_and_repeats_nothing(tmp_path: Path) -> None:
    whole = run(SETTINGS, tmp_path / "whole", local(1))
    code = f"""
import os, signal
from pathlib import Path
from miles_sim.campaign.local import local
from miles_sim.campaign.run import run
from miles_sim.campaign.settings import CampaignSettings

def kill(tally):
    if tally.scenarios == 3:
        os.kill(os.getpid(), signal.SIGKILL)

settings = CampaignSettings.model_validate_json({SETTINGS.model_dump_json()!r})
run(settings, Path({str(tmp_path / "killed")!r}), local(1), progress=kill)
"""
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert lines(tmp_path / "killed").count(b"\n") == 3
    assert told(run(SETTINGS, tmp_path / "killed", local(1))) == told(whole)
    assert lines(tmp_path / "killed") == lines(tmp_path / "whole")


def test_what_kills_a_process_is_told_and_costs_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    settings = SETTINGS.model_copy(update={"rollouts": 11, "target": "deadly:open_target", "faults": ()})
    summary = run(settings, tmp_path, local(2))
    assert summary.by_contract == {"session/play-ends": 1}
    assert (summary.scenarios, summary.rollouts, summary.samples > 0) == (3, 11, True)


def test_a_process_that_dies_while_scenarios_are_handed_out_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pool(ThreadPoolExecutor):
        """Broken from its third scenario on; those that follow it are whole."""

        made = 0

        def __init__(self) -> None:
            super().__init__(1)
            Pool.made += 1
            self.left = 2 if Pool.made == 1 else 8

        def submit(self, *asked: Any) -> Future[Any]:  # type: ignore[override]
            self.left -= 1
            if self.left < 0:
                raise BrokenProcessPool("a process died")
            return super().submit(lambda: Unit(number=asked[-1], session="v2", rollouts=4))

    monkeypatch.setattr(miles_sim.campaign.local, "_pool", lambda settings, workers: Pool())
    assert sorted(unit.number for unit in local(2)(SETTINGS, range(8))) == list(range(8))


def test_a_runner_that_leaves_a_scenario_out_is_refused(tmp_path: Path) -> None:
    def all_but_one(settings: CampaignSettings, numbers: Sequence[int]) -> Iterator[Unit]:
        yield from (Unit(number=number, session="v2", rollouts=4) for number in numbers if number != 2)

    with pytest.raises(CampaignError, match=r": unit 2 of 5 was never given by the runner$"):
        run(SETTINGS, tmp_path, all_but_one)


def test_a_target_that_cannot_be_opened_is_one_error_for_any_number_of_processes(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"target": "no_such_module:open_target"})
    for workers in (1, 2):
        with pytest.raises(UnknownTargetError, match="no_such_module"):
            run(settings, tmp_path / str(workers), local(workers))


def test_who_leaves_a_player_in_the_middle_of_a_play_leaves_nothing_running() -> None:
    with UnitPlayer(SETTINGS) as player:
        play = player._loop.create_task(asyncio.sleep(3_600))
    assert play.cancelled()
