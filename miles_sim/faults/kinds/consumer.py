"""Faults of the consumer layer."""
