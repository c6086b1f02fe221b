"""Faults: what can go wrong around the code under contract, and what that code must then do."""
