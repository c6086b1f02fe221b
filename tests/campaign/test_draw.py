"""Every number has its scenario, by itself, and each can be struck."""

import subprocess
import sys

import pytest

from miles_sim.campaign.draw import drawn
from miles_sim.campaign.settings import CampaignError, CampaignSettings, chosen_kinds
from miles_sim.scenarios.written import scenario_yaml

KINDS = chosen_kinds(("http-*", "transport-*"))


def test_a_number_gives_its_scenario_whatever_was_drawn_before() -> None:
    forward = [drawn(5, number, kinds=KINDS, rollouts=3) for number in range(12)]
    backward = [drawn(5, number, kinds=KINDS, rollouts=3) for number in reversed(range(12))]
    assert forward == backward[::-1]


def test_another_process_draws_the_same() -> None:
    code = (
        "from miles_sim.campaign.draw import drawn; from miles_sim.campaign.settings import chosen_kinds\n"
        "from miles_sim.scenarios.written import scenario_yaml\n"
        "print(scenario_yaml(drawn(5, 7, kinds=chosen_kinds(('http-*', 'transport-*')), rollouts=3)), end='')"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "11"})
    assert done.stdout == scenario_yaml(drawn(5, 7, kinds=KINDS, rollouts=3))


def test_seeds_and_numbers_draw_different_scenarios() -> None:
    texts = {
        scenario_yaml(drawn(seed, number, kinds=KINDS, rollouts=1).model_copy(update={"name": "x", "title": "x"}))
        for seed in range(3)
        for number in range(20)
    }
    assert len(texts) > 50


def test_what_is_drawn_covers_every_shape() -> None:
    scenarios = [drawn(0, number, kinds=KINDS, rollouts=2) for number in range(120)]
    text = "".join(map(scenario_yaml, scenarios))
    for shape in ("do: tool", "do: retry", "do: compact", "do: subagent", "do: parallel", "speculative", "retries"):
        assert shape in text
    assert {session for scenario in scenarios for session in scenario.sessions} >= {"v1", "v2"}
    assert {fault.kind for scenario in scenarios for fault in scenario.faults} == set(KINDS)


def test_nearly_every_scenario_has_faults() -> None:
    assert sum(bool(drawn(0, number, kinds=KINDS, rollouts=2).faults) for number in range(100)) > 90


def test_without_kinds_nothing_is_struck() -> None:
    assert drawn(0, 0, kinds=(), rollouts=2).faults == ()


def test_a_pattern_without_a_kind_is_refused() -> None:
    with pytest.raises(CampaignError, match="faults: 'htp-\\*' matches none of the"):
        chosen_kinds(("htp-*",))


@pytest.mark.parametrize(("rollouts", "sizes"), [(8, [8]), (9, [8, 1]), (24, [8, 8, 8]), (1, [1])])
def test_the_last_scenario_has_what_is_left(rollouts: int, sizes: list[int]) -> None:
    settings = CampaignSettings(rollouts=rollouts)
    assert [settings.rollouts_of(unit) for unit in range(settings.units)] == sizes
