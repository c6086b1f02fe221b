"""Where in a tree of histories a request stands: the stored history that is its longest prefix."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from miles_sim.rollout.session.matching import ComparingMatcher, KeyedMatcher, Matcher, Message


@dataclass(eq=False)
class Spot:
    """A message sequence from a root. `ends`: the latest generation whose whole history it is."""

    depth: int = 0
    ends: int | None = None
    keyed: "dict[Hashable, Spot]" = field(default_factory=dict)
    compared: "list[tuple[Message, Spot]]" = field(default_factory=list)


class Paths(Protocol):
    """Histories, each ended by the generation that completed it."""

    root: Spot

    def find(self, messages: Sequence[Message]) -> Spot | None:
        """The deepest history that `messages` begin with, of equally deep ones the latest; None if there is none."""
        ...

    def add(self, start: Spot, messages: Sequence[Message], ends: int) -> Spot:
        """The history of `start` and then `messages`, which generation `ends` completed."""
        ...


def paths(matcher: Matcher) -> Paths:
    """An empty index under `matcher`."""
    return KeyedPaths(matcher) if isinstance(matcher, KeyedMatcher) else ComparedPaths(matcher)


class KeyedPaths:
    """An index by message keys: both operations cost the messages given, whatever the size of the tree."""

    def __init__(self, matcher: KeyedMatcher) -> None:
        self.root = Spot()
        self._key = matcher.key

    def find(self, messages: Sequence[Message]) -> Spot | None:
        found, spot = None, self.root
        for message in messages:
            following = spot.keyed.get(self._key(message))
            if following is None:
                break
            spot = following
            if spot.ends is not None:
                found = spot
        return found

    def add(self, start: Spot, messages: Sequence[Message], ends: int) -> Spot:
        spot = start
        for message in messages:
            key = self._key(message)
            following = spot.keyed.get(key)
            if following is None:
                following = spot.keyed[key] = Spot(spot.depth + 1)
            spot = following
        spot.ends = ends
        return spot


class ComparedPaths:
    """The same for a matcher without keys: each message is compared with every stored one that may stand there."""

    def __init__(self, matcher: ComparingMatcher) -> None:
        self.root = Spot()
        self._same = matcher.same

    def find(self, messages: Sequence[Message]) -> Spot | None:
        best: Spot | None = None
        rank = (0, -1)
        reached = [self.root]
        while reached:
            spot = reached.pop()
            if spot.ends is not None and (spot.depth, spot.ends) > rank:
                best, rank = spot, (spot.depth, spot.ends)
            if spot.depth < len(messages):
                replayed = messages[spot.depth]
                reached += [following for stored, following in spot.compared if self._same(stored, replayed)]
        return best

    def add(self, start: Spot, messages: Sequence[Message], ends: int) -> Spot:
        spot = start
        for message in messages:
            following = Spot(spot.depth + 1)
            spot.compared.append((message, following))
            spot = following
        spot.ends = ends
        return spot
