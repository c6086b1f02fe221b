"""A seeded text that a regular expression matches as a whole."""

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any

from miles_sim.engine.errors import NotModelledError

if sys.version_info >= (3, 11):
    from re import _constants as sre  # type: ignore[attr-defined]
    from re import _parser as parser
else:
    import sre_constants as sre
    import sre_parse as parser

MOST_REPEATS = 8
"""Times beyond the least that something is repeated, where the expression says no less."""
LONGEST = 16_384
"""Pieces of a text."""
_PRINTABLE = range(0x20, 0x7F)
_CLASSES = {
    "CATEGORY_DIGIT": frozenset(b"0123456789"),
    "CATEGORY_SPACE": frozenset(b" \t\n"),
    "CATEGORY_WORD": frozenset(n for n in _PRINTABLE if chr(n).isalnum()) | {0x5F},
}
_LETTERS = tuple(n for n in _PRINTABLE if chr(n).isalnum())
_EDGES = (sre.AT_BEGINNING, sre.AT_END, sre.AT_BEGINNING_STRING, sre.AT_END_STRING)
Parsed = Sequence[tuple[Any, Any]]


def text_of_pattern(pattern: str, random: Random, *, field: str = "regex") -> str:
    """One text that `pattern` matches from end to end; the same for the same state of `random`.

    `re.error` for what is no pattern, `NotModelledError` on `field` for look-around, back references and the like,
    and for texts that are very long.
    """
    pieces: list[str] = []
    for piece in _Sampler(random, field, pattern).pieces(parsed(pattern)):
        pieces.append(piece)
        if len(pieces) > LONGEST:
            raise NotModelledError(field, pattern, f"texts of up to {LONGEST} characters")
    return "".join(pieces)


def parsed(pattern: str) -> Parsed:
    """What Python's own parser makes of it; `re.error` where it is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree: Parsed = parser.parse(pattern).data
        except (RecursionError, OverflowError) as error:
            raise re.error(str(error)) from None
        return tree


class _Sampler:
    def __init__(self, random: Random, field: str, pattern: str) -> None:
        self._random, self._field, self._pattern = random, field, pattern

    def pieces(self, tree: Iterable[tuple[Any, Any]]) -> Iterator[str]:
        for kind, value in tree:
            name = str(kind)
            if name in _ONE:
                yield _one_of(_ONE[name](value), self._random)
            elif name in _INNER:
                yield from self.pieces(self._random.choice(value[1]) if name == "BRANCH" else _INNER[name](value))
            elif name.endswith("_REPEAT"):
                for _ in range(self._times(*value[:2])):
                    yield ""
                    yield from self.pieces(value[2])
            elif name != "AT" or value not in _EDGES:
                raise NotModelledError(self._field, self._pattern, f"patterns without {name.lower().replace('_', ' ')}")

    def _times(self, least: int, most: Any) -> int:
        bound = least + MOST_REPEATS
        return self._random.randint(least, bound if most is sre.MAXREPEAT else min(int(most), bound))


def _one_of(characters: Sequence[int], random: Random) -> str:
    if not characters:
        raise re.error("a set of no characters")
    return chr(random.choice(characters))


def _members(items: Sequence[tuple[Any, Any]]) -> list[int]:
    """Characters of a set, in order; of a negated one those that can be printed."""
    negated = str(items[0][0]) == "NEGATE"
    found: set[int] = set()
    for kind, value in items[negated:]:
        name = str(kind)
        if name == "LITERAL":
            found.add(value)
        elif name == "RANGE":
            found.update(range(value[0], min(value[1], value[0] + 0x2FF) + 1))
        else:
            category = str(value)
            plain = _CLASSES[category.replace("NOT_", "")]
            found.update(set(_PRINTABLE) - plain if "NOT_" in category else plain)
    known = set(_PRINTABLE) - found if negated else {n for n in found if not 0xD800 <= n <= 0xDFFF}
    return sorted(known)


_ONE: dict[str, Callable[[Any], Sequence[int]]] = {
    "LITERAL": lambda value: [value],
    "NOT_LITERAL": lambda value: [n for n in _LETTERS if n != value],
    "ANY": lambda value: _LETTERS,
    "IN": _members,
}
"""Characters, of which one stands there."""
_INNER: dict[str, Callable[[Any], Parsed]] = {
    "BRANCH": lambda value: [],
    "SUBPATTERN": lambda value: value[-1],
    "ATOMIC_GROUP": lambda value: value,
}
