"""Faults of the model layer."""
