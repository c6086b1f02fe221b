"""Scenarios: engine settings, agent plan and rollout input in one document with a seed."""
