"""Targets: the implementations under contract, behind one adapter protocol."""
