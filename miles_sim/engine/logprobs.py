"""Logprobs: of every id at every place one consistent distribution, whichever part of it is asked for.

What stands before a place is one number, its state: the sum of the ids, the seed's before them, each times a power for
where it stands, modulo 2**32. All that is drawn for the place is the state times the place's own power, of which the
upper bits count: so two contexts, once told apart, differ at each place by something else.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
import orjson

from miles_sim.engine.packed import WIDTH, pack

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.uint32]

_STEP = math.log(0.4)
_FIRST = math.log(0.6)
_VALUES = 10
"""Logprobs that there are, as a power of two: few enough to stay in the processor's cache, spelled beforehand."""
_LEAST, _APART = 101, 2_928
"""Millionths: of the likeliest below 0, and between two neighbours; the last is above -3."""
_BITS = 32
_BASE = 0x9E3779B5
_IDS, _STATE, _SHIFT = np.dtype("<u4"), np.dtype(np.uint32), np.array(_BITS - _VALUES, dtype=np.uint32)


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


class State(NamedTuple):
    """What stands before a place."""

    total: int
    place: int
    """Ids before it."""


def state_after(packed: bytes, seed: int) -> State:
    """Of the place behind these ids."""
    states, _ = _states(packed, seed)
    return State(int(states[-1]), len(packed) // WIDTH)


def next_state(state: State, token: int) -> State:
    """Of the next place, once `token` stands at this one."""
    return State((state.total + token * _power(state.place + 1)) % (1 << _BITS), state.place + 1)


def draw_of(state: State) -> int:
    """A number of 32 bits."""
    return state.total * _power(state.place) % (1 << _BITS)


def logprob_of(state: State) -> float:
    """Of the id that stands before the place: below 0, above -3, six decimals."""
    return float(_table().values[draw_of(state) >> _BITS - _VALUES])


def _power(place: int) -> int:
    return pow(_BASE, place + 1, 1 << _BITS)


@cache
def _powers(bits: int) -> "Numbers":
    """Of so many places, as a power of two."""
    return np.full(1 << bits, _BASE, dtype=np.uint32).cumprod(dtype=np.uint32)


@lru_cache(maxsize=64)
def _before_all(seed: int) -> bytes:
    return blake2b(b"%d" % seed, digest_size=WIDTH).digest()


def _states(packed: bytes, seed: int) -> "tuple[Numbers, Numbers]":
    """Of each place of these ids, and of the one behind them, and the power of each."""
    ids = np.frombuffer(_before_all(seed) + packed, _IDS)
    powers = _powers(len(ids).bit_length())[: len(ids)]
    return np.add.accumulate(ids * powers, 0, _STATE), powers


class _Table(NamedTuple):
    """All logprobs that there are."""

    values: "npt.NDArray[np.float64]"
    spelled: "npt.NDArray[Any]"
    """JSON of each: bytes."""


@lru_cache(maxsize=1)
def _table() -> _Table:
    values = [(_LEAST + number * _APART) / -1_000_000 for number in range(1 << _VALUES)]
    return _Table(np.array(values), np.array(orjson.dumps(values)[1:-1].split(b","), dtype=object))


def place_draws(ids: Sequence[int], *, start: int, seed: int) -> list[int]:
    """A number of 32 bits for each place of `ids` from `start` on, drawn from the seed and the ids before it."""
    states, powers = _states(pack(ids), seed)
    return (states[start:-1] * powers[start:-1]).tolist()  # type: ignore[no-any-return]


class Logprobs(Sequence[float]):
    """Of output ids behind a prompt, both packed; drawn when somebody reads them, for few are read but once.

    What stands before an id and the id itself say it all, so that a request which has both in its prompt is told the
    same number.
    """

    __slots__ = ("_output", "_prompt", "_read", "_seed")

    def __init__(self, prompt: bytes, output: bytes, *, seed: int) -> None:
        self._prompt, self._output, self._seed = prompt, output, seed
        self._read: npt.NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self._output) // WIDTH

    @overload
    def __getitem__(self, place: int) -> float: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[float, ...]: ...
    def __getitem__(self, place: int | slice) -> float | tuple[float, ...]:
        if self._read is None:  # kept from here on: a stream reads part after part
            self._read = _table().values[self._numbers]
        found = self._read[place]
        return tuple(found.tolist()) if isinstance(place, slice) else float(found)

    def __iter__(self) -> Iterator[float]:
        return iter(_table().values[self._numbers].tolist())

    @property
    def spelled(self) -> list[bytes]:
        """JSON of each."""
        return _table().spelled.take(self._numbers).tolist()  # type: ignore[no-any-return]

    @property
    def _numbers(self) -> "Numbers":
        """Which of the table they are."""
        states, powers = _states(self._prompt + self._output, self._seed)
        start = len(self._prompt) // WIDTH + 1
        return states[start:] * powers[start:] >> _SHIFT


def prompt_logprobs(ids: Sequence[int], *, start: int, seed: int) -> list[float | None]:
    """Of each prompt id from `start` on, given those before it; the first of the prompt has none."""
    told: list[float | None] = [*Logprobs(pack(ids[:start]), pack(ids[start:]), seed=seed)]
    return [None, *told[1:]] if start == 0 and told else told
