"""Faults of the payload layer."""
