"""Benchmarks: how quick the parts are beside what they stand in for, and random bodies for the engine."""
