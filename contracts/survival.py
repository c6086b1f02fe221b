"""Survival: that a play ends at all. What a rule cannot see, the run itself takes down."""

from miles_sim.verify.survival import play_ends

__all__ = ["play_ends"]
