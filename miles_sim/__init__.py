"""miles-sim: contract tests and a simulator for code that turns agent rollouts into training samples."""

__version__ = "0.1.0"
