"""Faults of the agent layer."""
