"""Survival: "session/play-ends". No rule can see a play without an end; the run itself takes it down."""

from miles_sim.verify.survival import play_ends

__all__ = ["play_ends"]
