"""Bugs that really happened, in miles or its peers, done again to our own implementation, one function at a time.

Each yields wrong data where it can, not a crash: that is what contracts are for.
"""

from . import (
    assembly,
    batch,
    counting,
    drift,
    engine,
    faults,
    gaps,
    identity,
    outages,
    plays,
    replay,
    session,
    telling,
    wire,
)
from .defect import DEFECTS, Defect

__all__ = [
    "DEFECTS",
    "Defect",
    "assembly",
    "batch",
    "counting",
    "drift",
    "engine",
    "faults",
    "gaps",
    "identity",
    "outages",
    "plays",
    "replay",
    "session",
    "telling",
    "wire",
]
