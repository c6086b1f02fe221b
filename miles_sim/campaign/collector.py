"""Python's collector of cyclic garbage, called between scenarios, where nearly all that it would look at is gone."""

import gc

OFTEN = 50_000
"""Objects of one scenario after which it runs all the same. A scenario of eight rollouts makes half as many."""


class Collector:
    """In charge from `begin` to `end`: left to itself it takes a seventh of a campaign's time."""

    def __init__(self) -> None:
        self._played = 0
        self._threshold = gc.get_threshold()

    def begin(self) -> None:
        self._threshold = gc.get_threshold()
        gc.set_threshold(OFTEN, 20, 100)

    def played(self) -> None:
        """A scenario is over: what it leaves is collected.

        What is still there is kept for good, caches and the like. It is set apart, ever more rarely, not to be looked
        at again.
        """
        gc.collect()
        self._played += 1
        if self._played & (self._played - 1) == 0:
            gc.freeze()

    def end(self) -> None:
        gc.unfreeze()
        gc.set_threshold(*self._threshold)
