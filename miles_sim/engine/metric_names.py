"""Which metrics each release has, with their help and labels: data from `fixtures/metrics.yaml`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeVar

from pydantic import Field

from miles_sim.document import Document, read
from miles_sim.engine.release import order_until
from miles_sim.resources import FIXTURES
from miles_sim.yaml_file import YamlFile

FILE = FIXTURES / "metrics.yaml"
Type = Literal["gauge", "counter", "histogram"]
Scope = Literal["scheduler", "front_end"]
T = TypeVar("T")


class _Metric(Document):
    type: Type
    scope: Scope
    since: str | None = None
    until: str | None = None
    help: dict[str, str]
    """From that release on."""
    labels: dict[str, tuple[str, ...]] = {}
    """Beside those of its scope, from that release on."""
    bounds: dict[str, tuple[float, ...]] = {}


class _Metrics(Document):
    source: str = Field(min_length=1)
    metrics: dict[str, _Metric]


@dataclass(frozen=True)
class Metric:
    """One metric of a release."""

    name: str
    """Without `sglang:`."""
    type: Type
    scope: Scope
    help: str
    labels: tuple[str, ...] = ()
    """Beside those of its scope."""
    bounds: frozenset[float] = frozenset()
    """Upper bounds of a histogram's buckets, infinity left out."""


@lru_cache(maxsize=32)
def metrics_of(profile: str) -> tuple[Metric, ...]:
    """All that the release has and a simulated engine can tell, in the order in which they are told."""
    known = read(_Metrics, YamlFile(FILE).data, name="fixtures/metrics.yaml")
    so_far = order_until(profile)
    return tuple(
        Metric(
            name,
            metric.type,
            metric.scope,
            _last(metric.help, so_far, ""),
            _last(metric.labels, so_far, ()),
            frozenset(_last(metric.bounds, so_far, ())),
        )
        for name, metric in known.metrics.items()
        if (metric.since is None or metric.since in so_far) and (metric.until not in so_far[:-1])
    )


def _last(values: Mapping[str, T], so_far: Sequence[str], default: T) -> T:
    return next((values[profile] for profile in reversed(so_far) if profile in values), default)
