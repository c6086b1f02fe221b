"""Seconds to merge the turns of one conversation, by their number, beside miles' `merge_samples`."""

from dataclasses import asdict, dataclass
from typing import Any

from miles_sim.bench.beside import Miles
from miles_sim.bench.growth import per_doubling
from miles_sim.bench.miles_side import Bytes, best, turn_fields
from miles_sim.rollout.merge import merge_samples
from miles_sim.rollout.sample import Sample, Status
from miles_sim.tokenizer import TokenizerError

TURNS = (8, 16, 32, 64, 128, 256, 512, 1024)
COMPARED = 256
"""Turns at which both are measured: miles' cost is quadratic."""

ROUNDS = 3
"""Each point is measured so often, the others between, so that a busy spell of the machine falls on all."""


@dataclass(frozen=True)
class Point:
    """One length of conversation; the least of all rounds."""

    turns: int
    tokens: int
    seconds: float


@dataclass(frozen=True)
class MergeBench:
    """`growth_per_doubling`: 2 to the exponent of the power law that fits all points best."""

    points: list[Point]
    growth_per_doubling: float
    ratio_miles: float | None = None
    """miles' seconds / ours, at `COMPARED` turns of the same samples; None where it was not measured."""

    def document(self) -> dict[str, Any]:
        return asdict(self)


def measure(*, seconds: float, miles: Miles | None) -> MergeBench:
    """`seconds`: measured for each point."""
    rounds = [[_point(turns, seconds / ROUNDS) for turns in TURNS] for _ in range(ROUNDS)]
    points = [min(found, key=lambda point: point.seconds) for found in zip(*rounds, strict=True)]
    ratio = None
    if miles is not None:
        (theirs,) = miles.measured("merge", turns=[COMPARED], seconds=seconds)
        ours = next(point.seconds for point in points if point.turns == COMPARED)
        ratio = round(theirs / ours, 1)
    return MergeBench(points, round(growth(points), 3), ratio)


def growth(points: list[Point]) -> float:
    """Of the seconds, with the turns."""
    return per_doubling([point.turns for point in points], [point.seconds for point in points])


def _point(turns: int, seconds: float) -> Point:
    samples = [Sample(status=Status.COMPLETED, **fields) for fields in turn_fields(turns)]
    tokens = len(merge_samples(samples, _Decoder()).tokens)
    return Point(turns, tokens, best(lambda: merge_samples(samples, _Decoder()), seconds=seconds))


class _Decoder(Bytes):
    """Merging only decodes."""

    max_trim_tokens = 0
    trailing_ids = frozenset[int]()

    def encode(self, text: str) -> list[int]:
        raise TokenizerError("encode, render: a merge only decodes")

    def render(self, *arguments: Any, **options: Any) -> list[int]:
        raise TokenizerError("encode, render: a merge only decodes")

    extend = render
