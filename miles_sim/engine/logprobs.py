"""Logprobs: of every id at every place one consistent distribution, whichever part of it is asked for."""

import math
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload
from zlib import crc32

import numpy as np
import orjson

from miles_sim.engine.packed import WIDTH, pack, picked

if TYPE_CHECKING:
    import numpy.typing as npt

_STEP = math.log(0.4)
_FIRST = math.log(0.6)
_DRAWS = 3_000_000
_BYTES = tuple(token.to_bytes(WIDTH, "little") for token in range(4_096))


class Place:
    """The distribution at one place: the id that stands there, its logprob, and the rest of the probability spread
    over all other ids, each 0.4 times as likely as the one before it, in an order drawn for the place."""

    def __init__(self, token: int, logprob: float, draw: int, vocab_size: int) -> None:
        self._token, self._logprob, self._vocab = token, logprob, vocab_size
        self._rest = math.log(-math.expm1(min(logprob, -1e-9)))
        self._stride = _coprime(1 + draw % (vocab_size - 1), vocab_size)

    def logprob(self, token: int) -> float:
        """Of any id of the vocabulary."""
        if token == self._token:
            return self._logprob
        rank = (token - self._token) * pow(self._stride, -1, self._vocab) % self._vocab - 1
        return self._other(rank)

    def top(self, count: int) -> list[tuple[float, int]]:
        """(logprob, id) of the `count` likeliest ids, the likeliest first; fewer where the vocabulary has fewer."""
        others = [
            (self._other(rank), (self._token + (rank + 1) * self._stride) % self._vocab)
            for rank in range(min(count, self._vocab - 1))
        ]
        before = next((n for n, (logprob, _) in enumerate(others) if logprob < self._logprob), len(others))
        return [*others[:before], (self._logprob, self._token), *others[before:]][:count]

    def _other(self, rank: int) -> float:
        return round(self._rest + _FIRST + rank * _STEP, 6)


def _coprime(stride: int, size: int) -> int:
    while math.gcd(stride, size) != 1:
        stride += 1
    return stride


def place_draws(ids: Sequence[int], *, start: int, seed: int) -> list[int]:
    """A number of 32 bits for each place of `ids` from `start` on, drawn from the seed and the ids before it."""
    return [state_after(pack(ids[:start]), seed), *_chain(ids[start:], pack(ids[:start]), seed)][: len(ids) - start]


def state_after(packed: bytes, seed: int) -> int:
    """The draw of the place behind these ids."""
    return crc32(packed, crc32(b"%d" % seed))


def next_state(state: int, token: int) -> int:
    """The draw of the next place, once `token` stands at this one."""
    return crc32(token.to_bytes(WIDTH, "little"), state)


def logprob_of(state: int) -> float:
    """Of the id that stands before the place with that draw: below 0, six decimals, one of three million."""
    return (state % _DRAWS + 1) / -1_000_000


def _chain(ids: Sequence[int], packed: bytes, seed: int) -> list[int]:
    """The draw of the place behind each of `ids`, `packed` standing before them. Ids of a vocabulary have their bytes
    at hand: this is done for every reply."""
    state = first = state_after(packed, seed)
    try:
        return [state := crc32(token, state) for token in picked(_BYTES, ids)]
    except IndexError:
        return [first := next_state(first, token) for token in ids]


class Logprobs(Sequence[float]):
    """Of sampled ids: numbers of eight bytes, made objects when somebody reads them, and spelled without them."""

    __slots__ = ("_numbers",)

    def __init__(self, numbers: "npt.NDArray[np.float64]") -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> float: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[float, ...]: ...
    def __getitem__(self, place: int | slice) -> float | tuple[float, ...]:
        found = self._numbers[place]
        return tuple(found.tolist()) if isinstance(place, slice) else float(found)

    def __iter__(self) -> Iterator[float]:
        return iter(self[:])

    @property
    def spelled(self) -> list[bytes]:
        """JSON of each of one or more."""
        return orjson.dumps(self._numbers, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")


def sampled_logprobs(packed: bytes, ids: Sequence[int], *, seed: int) -> Logprobs:
    """Of output ids behind a packed prompt. What stands before an id and the id itself say it all, so that a request
    which has both in its prompt is told the same number."""
    states = np.frombuffer(array("I", _chain(ids, packed, seed)), dtype=np.uint32)
    return Logprobs((states % _DRAWS + 1) / -1e6)


def prompt_logprobs(ids: Sequence[int], *, start: int, seed: int) -> list[float | None]:
    """Of each prompt id from `start` on, given those before it; the first of the prompt has none."""
    told: list[float | None] = [*map(logprob_of, _chain(ids[start:], pack(ids[:start]), seed))]
    return [None, *told[1:]] if start == 0 and told else told
