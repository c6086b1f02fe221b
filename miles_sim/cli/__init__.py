"""The command line: one module a group of commands, `main` puts them together."""

from miles_sim.cli.main import app, main

__all__ = ["app", "main"]
