"""Faults of the transport layer."""
