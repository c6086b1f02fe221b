"""Rollouts straight against the engine's `/generate`, without a session server between."""
