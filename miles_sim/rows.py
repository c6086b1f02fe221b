"""Replay rows: which experts, or which positions, each id of a generation was routed to. Made up, but recognisable.

Row `i` belongs to the transition from id `i` to id `i + 1`. It is a pure function of the id, its position, all ids
before it, and a salt (the engine's seed, its weight version, and whether the row was prefilled): a row of another
place, another conversation or another pass over the same ids shows at once.
"""

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from miles_sim.document import Document

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.int32]

_GOLDEN = 0x9E3779B97F4A7C15


class RowsTruth(Document):
    """All that the rows of one generation follow from, beside its ids."""

    layers: int = Field(ge=1)
    topk: int = Field(ge=1)
    experts: int | None = None
    """Values are distinct numbers below this; None: distinct positions up to the row's own, then -1."""
    salts: tuple[tuple[int, int], ...]
    """(first row, salt from there on), ascending, the first from row 0."""


def salt(seed: int, kind: Literal["experts", "indexer"], weight_version: str, phase: str) -> int:
    """64 bits that differ wherever one of these does."""
    key = f"{seed}/{kind}/{weight_version}/{phase}".encode(errors="surrogatepass")
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "little")


def rows(truth: RowsTruth, ids: Sequence[int], *, start: int = 0) -> "Rows":
    """Rows `start..len(ids) - 2` of prompt and output ids, int32, shape (rows, layers, topk)."""
    import numpy as np

    count = max(len(ids) - 1, 0)
    if start >= count:
        return np.zeros((0, truth.layers, truth.topk), dtype=np.int32)
    place = np.arange(count, dtype=np.uint64)
    tokens = np.asarray(ids, dtype=np.int64)[:count].astype(np.uint64)
    context = np.cumsum(_mixed(tokens + (place + np.uint64(1)) * np.uint64(_GOLDEN)))
    state = _mixed(context ^ _salts(truth, count))[start:]
    layer = np.arange(1, truth.layers + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    drawn = _mixed(state[:, None] + layer[None, :])
    return _positions(truth, drawn, place[start:]) if truth.experts is None else _experts(truth, drawn)


def _experts(truth: RowsTruth, drawn: "NDArray[np.uint64]") -> "Rows":
    """From a drawn number onwards in a drawn stride that meets no number twice."""
    import numpy as np

    count = truth.experts or 1
    strides = np.array([n for n in range(1, count + 1) if math.gcd(n, count) == 1], dtype=np.int32)
    first = (drawn % np.uint64(count)).astype(np.int32)
    stride = strides[(drawn >> np.uint64(32)) % np.uint64(len(strides))]
    numbers = first[:, :, None] + stride[:, :, None] * np.arange(truth.topk, dtype=np.int32)
    named: Rows = np.remainder(numbers, np.int32(count), dtype=np.int32)
    return named


def _positions(truth: RowsTruth, drawn: "NDArray[np.uint64]", place: "NDArray[np.uint64]") -> "Rows":
    """From a drawn position onwards, round the row's own position to 0; -1 where there are fewer than `topk`."""
    import numpy as np

    seen = place + np.uint64(1)
    first = (drawn % seen[:, None]).astype(np.int64)
    step = np.arange(truth.topk, dtype=np.int64)
    limit = seen.astype(np.int64)[:, None, None]
    return np.where(step < limit, (first[:, :, None] + step) % limit, -1).astype(np.int32)


def _salts(truth: RowsTruth, count: int) -> "NDArray[np.uint64]":
    import numpy as np

    salts = np.zeros(count, dtype=np.uint64)
    for first, value in truth.salts:
        salts[first:] = np.uint64(value)
    return salts


def _mixed(values: "NDArray[np.uint64]") -> "NDArray[np.uint64]":
    """SplitMix64's finisher: each bit of the result hangs on every bit of the value."""
    import numpy as np

    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = values ^ (values >> np.uint64(31))
    return mixed
