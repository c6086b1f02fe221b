"""A campaign's folder: nothing twice, nothing lost, whatever kills it."""

from pathlib import Path

import pytest

from miles_sim.campaign.settings import CampaignError, CampaignSettings
from miles_sim.campaign.store import Store
from miles_sim.campaign.unit import Unit

SETTINGS = CampaignSettings(seed=3, rollouts=40)


def unit(number: int) -> Unit:
    return Unit(number=number, session="v2", rollouts=8, fired={"http-503": number})


def filled(folder: Path, count: int) -> None:
    with Store(folder, SETTINGS) as store:
        for number in range(count):
            store.append(unit(number))


def test_what_was_stored_is_read_back_in_order(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    with Store(tmp_path, SETTINGS) as store:
        assert (store.done, list(store.units())) == (3, [unit(0), unit(1), unit(2)])


@pytest.mark.parametrize("left", [1, 20, -1])
def test_a_line_that_a_kill_cut_short_is_done_again(tmp_path: Path, left: int) -> None:
    filled(tmp_path, 3)
    file = tmp_path / "units.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:2]) + lines[2][:left])
    with Store(tmp_path, SETTINGS) as store:
        assert store.done == 2
        store.append(unit(2))
    assert file.read_bytes() == b"".join(lines)


def test_a_unit_out_of_turn_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path, SETTINGS) as store, pytest.raises(CampaignError, match="unit 1 is given where 0 is due"):
        store.append(unit(1))


def test_another_campaign_is_refused_by_what_differs(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    other = SETTINGS.model_copy(update={"seed": 4})
    with pytest.raises(CampaignError, match="holds another campaign: seed 3, not 4"), Store(tmp_path, other):
        pass


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("chapter 1")
    with pytest.raises(CampaignError, match="is not empty, and holds no campaign"), Store(tmp_path, SETTINGS):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_spoiled_line_is_named(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    file = tmp_path / "units.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"number":1', b'"number":7'))
    with pytest.raises(CampaignError, match="line 2: holds unit 7, 1 is due"), Store(tmp_path, SETTINGS):
        pass
