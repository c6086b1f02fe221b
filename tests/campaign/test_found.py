"""What a campaign finds can be played again, and is small."""

from pathlib import Path
from typing import Any

import pytest

from miles_sim.agent.plan import walk
from miles_sim.campaign.found import saved, violates
from miles_sim.campaign.local import local
from miles_sim.campaign.run import run
from miles_sim.campaign.settings import CampaignSettings
from miles_sim.campaign.store import Store
from miles_sim.campaign.unit import UnitPlayer
from miles_sim.rollout import assembly
from miles_sim.scenarios.library import load_file

SETTINGS = CampaignSettings(seed=4, rollouts=8, per_unit=2, faults=("http-503",), contracts=("tokens/*",))


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Observations are trained on."""
    joined = assembly._joined

    def changed(*given: Any) -> Any:
        sample = joined(*given)
        sample.loss_mask = [1] * sample.response_length
        return sample

    monkeypatch.setattr(assembly, "_joined", changed)


def test_a_planted_defect_is_found_saved_and_shrunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    summary = run(SETTINGS, tmp_path, local(1))
    assert "tokens/observation-masked" in summary.by_contract
    with Store(tmp_path, SETTINGS) as store:
        found = saved(SETTINGS, store.units(), tmp_path / "violations", shrunk=1)
    assert len(found) == summary.violations
    small = next(one for one in found if one.plays is not None)
    scenario = load_file(small.path)
    assert scenario.faults == ()
    assert [step.do for _, step in walk(scenario.plan.steps)] in (["say", "say"], ["say", "tool"], ["say", "retry"])
    assert len(scenario.rollouts) == 1
    with UnitPlayer(SETTINGS) as player:
        for one in found:
            again = load_file(one.path)
            assert any(violates(player, again, session, one.contract) for session in again.sessions)
    assert f"--scenario {small.path} --contract {small.contract}" in small.repro


def test_without_a_defect_nothing_is_found(tmp_path: Path) -> None:
    summary = run(SETTINGS, tmp_path, local(1))
    assert (summary.violations, summary.false_samples) == (0, 0)
