"""How a cost grows with a size."""

from collections.abc import Sequence
from math import log2


def per_doubling(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Factor by which twice the size costs more (2.0: linear): 2 to the exponent of the power law that fits best.

    By least squares of log cost on log size, so two or more different sizes, all numbers above 0.
    """
    xs, ys = [log2(size) for size in sizes], [log2(cost) for cost in costs]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / sum((x - mean_x) ** 2 for x in xs)
    return float(2**slope)
