"""Python's collector of cyclic garbage, called between plays, where nearly all that it would look at is gone."""

import gc
from types import TracebackType

OFTEN = 50_000
"""Objects after which it runs all the same. A scenario of eight rollouts makes half as many."""
EVERY = 32
"""Plays after which it looks at what stayed from those before as well."""


class Collector:
    """A context manager, in charge while it lasts: left to itself the collector takes a seventh of all time."""

    def __init__(self) -> None:
        self._played = 0
        self._threshold = gc.get_threshold()

    def __enter__(self) -> "Collector":
        self._threshold = gc.get_threshold()
        gc.set_threshold(OFTEN, 20, 100)
        return self

    def played(self) -> None:
        """A play is over: what it leaves is collected.

        What is still there is kept for good, caches and the like. It is set apart, ever more rarely, not to be looked
        at again.
        """
        self._played += 1
        apart = self._played & (self._played - 1) == 0
        gc.collect(2 if apart or self._played % EVERY == 0 else 0)
        if apart:
            gc.freeze()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gc.unfreeze()
        gc.set_threshold(*self._threshold)
