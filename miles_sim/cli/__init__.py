"""The command line: one module a group of commands, `commands` puts them together."""

from miles_sim.cli.commands import app, main

__all__ = ["app", "main"]
