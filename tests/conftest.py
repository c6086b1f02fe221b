"""Hypothesis without wall-clock verdicts: a slow machine is no fault of the code."""

from hypothesis import HealthCheck, settings

settings.register_profile("miles-sim", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("miles-sim")
