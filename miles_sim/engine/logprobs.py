"""Logprobs: of every id at every place one consistent distribution, whichever part of it is asked for."""

import math
import struct
from collections.abc import Sequence
from zlib import crc32

_STEP = math.log(0.4)
_FIRST = math.log(0.6)
_DRAWS = 3_000_000


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
    state = crc32(struct.pack(f"<{start}I", *ids[:start]), crc32(b"%d" % seed))
    draws = []
    for token in ids[start:]:
        draws.append(state)
        state = crc32(token.to_bytes(4, "little"), state)
    return draws


def prompt_logprobs(ids: Sequence[int], *, start: int, seed: int) -> list[float | None]:
    """Of each prompt id from `start` on, given those before it; the first of the prompt has none."""
    draws = place_draws(ids, start=start, seed=seed)
    return [
        None if place == 0 else -(crc32(token.to_bytes(4, "little"), draw) % _DRAWS + 1) / 1_000_000
        for place, (token, draw) in enumerate(zip(ids[start:], draws, strict=True), start=start)
    ]
