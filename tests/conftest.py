"""Hypothesis without wall-clock verdicts: a slow machine is no fault of the code. Browser tests where one is named.
Ctrl-C for what tests start, even where a shell has these tests in the background, for which it is switched off."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("miles-sim", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("miles-sim")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

NEEDS = {"browser": "MILES_SIM_CHROMIUM", "sglang": "MILES_SIM_SGLANG_PYTHON", "miles": "MILES_SIM_MILES_PYTHON"}
"""Environment variables that name what the tests with a marker need."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests whose marker needs what the environment does not name."""
    absent = [marker for marker, variable in NEEDS.items() if not os.environ.get(variable)]
    left_out = [item for item in items if any(item.get_closest_marker(marker) for marker in absent)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
