"""Scenarios: engine settings, agent plan and rollout input in one document with a seed."""

from miles_sim.scenarios.library import UnknownScenarioError, load, load_file, names, resolve
from miles_sim.scenarios.model import Scenario

__all__ = ["Scenario", "UnknownScenarioError", "load", "load_file", "names", "resolve"]
