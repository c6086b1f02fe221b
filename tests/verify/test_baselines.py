"""The committed baselines: each entry has its reason and its link, for a contract and cases that exist."""

import itertools
import re
from pathlib import Path

import pytest

from miles_sim.resources import CONTRACTS
from miles_sim.scenarios import library
from miles_sim.verify.baseline import load_baseline
from miles_sim.verify.pack import load_pack

FILES = sorted((CONTRACTS / "baselines").glob("*.yaml"))


LINK = r"https://(github\.com/[\w-]+/[\w-]+/((pull|issues)/\d+|blob/[0-9a-f]+/[\w./-]+)|pypi\.org/project/[\w./-]+/)"
"""A thread, a file as it stood at a commit, or a release."""


def test_the_wheel_and_the_august_state_have_one() -> None:
    assert [file.stem for file in FILES] == ["miles-31f1ca961", "miles-rl-0.0.2"]


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_each_entry_has_a_reason_and_a_link_and_names_cases_that_exist(file: Path) -> None:
    made = load_baseline(file, contracts=[rule.id for rule in load_pack()])
    sessions = {name: library.load(name).sessions for name in library.names()}
    cases = {f"{name}/{session}" for name, versions in sessions.items() for session in versions}
    for name, versions in sessions.items():  # and several versions beside each other, for rules that compare them
        cases |= {f"{name}/{'+'.join(some)}" for n in (2, 3) for some in itertools.combinations(versions, n)}
    for entry in made.known:
        assert set(entry.scenarios) <= cases, entry.contract
        assert re.fullmatch(LINK, entry.link), entry.contract
        assert not entry.reason.startswith("TODO"), entry.contract
