"""Faults of the life layer."""
