"""Constrained decoding: seeded text that obeys a JSON schema, a regular expression or a choice of tools."""

from miles_sim.engine.grammar.constraint import Constraint, check_constraint, obeyed

__all__ = ["Constraint", "check_constraint", "obeyed"]
