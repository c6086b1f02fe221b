"""Contracts of one's own beside the built-in ones, judging a picker of one's own."""

from pathlib import Path

import pytest

from miles_sim.pytest_plugin import contracts


def deepest_first(samples, session_metadata):
    """All leaves that the default picker keeps, in its order."""
    from miles_sim.rollout.selection import PICKERS

    return PICKERS["drop_retries"](samples, session_metadata)


@pytest.mark.miles_scenario("retry-middle", "subagent-fork-after", session="v2", sample_picker=deepest_first)
@contracts("house/*", "selection/*", packs=[Path(__file__).parent / "house_contracts"])
def test_my_picker_under_both_packs(contract, miles_case):
    contract.check_on(miles_case)
