"""Verification: the rule API, contract packs, playing, judging, baselines."""

from miles_sim.verify.rule import Case, Level, Recorder, Rule, Severity, rule

__all__ = ["Case", "Level", "Recorder", "Rule", "Severity", "rule"]
