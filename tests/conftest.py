"""Hypothesis without wall-clock verdicts: a slow machine is no fault of the code. Browser tests where one is named."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("miles-sim", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("miles-sim")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests marked `browser` out where `MILES_SIM_CHROMIUM` names none."""
    if not os.environ.get("MILES_SIM_CHROMIUM"):
        left_out = [item for item in items if item.get_closest_marker("browser")]
        items[:] = [item for item in items if not item.get_closest_marker("browser")]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
