"""The campaign and shrink commands: what they print and write, and how they end."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from miles_sim.campaign.unit import Unit, UnitPlayer
from miles_sim.cli import app
from miles_sim.rollout import assembly

SMALL = ("campaign", "--rollouts", "6", "--per-scenario", "3", "--faults", "http-503", "--contract", "tokens/*")


def _run(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def _masked_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = assembly._joined

    def changed(*given: Any) -> Any:
        sample = joined(*given)
        sample.loss_mask = [1] * sample.response_length
        return sample

    monkeypatch.setattr(assembly, "_joined", changed)


def test_what_holds_is_counted_and_exits_0() -> None:
    result = _run(*SMALL, "--json", "summary.json")
    assert result.exit_code == 0, result.output
    summary = json.loads(Path("summary.json").read_text())
    assert (summary["rollouts"], summary["violations"], summary["false_samples"]) == (6, 0, 0)
    assert {"faults_fired", "rollouts_per_second", "peak_rss_mb", "by_kind"} <= summary.keys()
    assert "6 rollouts in 2 scenarios" in result.output
    assert not Path("miles-sim-campaign-0/violations").exists()


LOUD = """
from miles_sim.verify import rule


@rule("own/no-third-rollout", level="meaning", reason="to see it found", source="this test")
def no_third_rollout(case, rollout, see):
    \"\"\"No scenario has three rollouts.\"\"\"
    see.that(rollout.number < 2, "a third rollout")
"""


def test_own_contracts_judge_each_scenario_and_stand_in_the_line_that_shows_it_again() -> None:
    Path("own").mkdir()
    Path("own/loud.py").write_text(LOUD)
    for workers in "1", "2":
        words = (*SMALL[:-1], "own/*", "--contracts", "own", "--workers", workers, "--out", f"by-{workers}")
        result = _run(*words)
        assert (result.exit_code, "own/no-third-rollout: a third rollout" in result.output) == (1, True), result.output
    repro = next(line.split() for line in result.output.splitlines() if line.startswith("  miles-sim verify"))
    assert repro[2:4] == ["--contracts", "own"]
    assert _run(*repro[1:]).exit_code == 1
    file = repro[repro.index("--scenario") + 1]
    assert _run("shrink", file, "--contracts", "own", "--contract", "own/*", "--plays", "5").exit_code == 1
    refused = _run(*SMALL, "--contracts", "nowhere")
    assert (refused.exit_code, "nowhere is not a folder" in refused.output) == (2, True)


@pytest.mark.usefixtures("_masked_wrongly")
def test_what_is_violated_is_saved_shown_again_by_its_line_and_shrunk_further_by_nothing() -> None:
    result = _run(*SMALL, "--rollouts", "30")
    assert result.exit_code == 1, result.output
    repro = next(line.split() for line in result.output.splitlines() if line.startswith("  miles-sim verify"))
    again = _run(*repro[1:])
    assert again.exit_code == 1
    assert "tokens/observation-masked" in again.output
    file = repro[repro.index("--scenario") + 1]
    small = _run("shrink", file, "--out", "small.yaml")
    assert small.exit_code == 1
    assert _run("verify", "--scenario", "small.yaml", "--contract", "tokens/observation-masked").exit_code == 1


def test_one_that_is_stopped_tells_how_much_is_done_and_the_same_command_does_the_rest() -> None:
    play = UnitPlayer.play

    def until_ctrl_c(player: UnitPlayer, number: int) -> Unit:
        if number == 1:
            raise KeyboardInterrupt
        return play(player, number)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(UnitPlayer, "play", until_ctrl_c)
        stopped = _run(*SMALL)
    assert (stopped.exit_code, stopped.stdout) == (130, "")
    assert stopped.stderr == "stopped after 3 of 6 rollouts; the same command goes on\n"
    assert "6 rollouts in 2 scenarios" in _run(*SMALL).output


def test_going_on_with_other_settings_is_refused_in_one_line() -> None:
    assert _run(*SMALL).exit_code == 0
    result = _run(*SMALL, "--seed", "1", "--out", "miles-sim-campaign-0")
    assert result.exit_code == 2
    assert "holds another campaign: seed 0, not 1" in result.stderr


def test_a_kind_that_there_is_not_is_refused_in_one_line() -> None:
    result = _run("campaign", "--faults", "htp-503")
    assert result.exit_code == 2
    assert result.stderr.startswith("miles-sim: faults: 'htp-503' matches none of the")


def test_a_scenario_that_violates_nothing_is_not_shrunk() -> None:
    result = _run("shrink", "linear")
    assert result.exit_code == 0
    assert "linear/v2 violates nothing" in result.stderr
