"""Faults of the http layer."""
