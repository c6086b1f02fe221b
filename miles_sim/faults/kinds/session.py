"""Faults of the session layer."""
