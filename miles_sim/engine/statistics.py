"""What an engine has done so far, counted: the source of load reports and of Prometheus metrics."""

from bisect import bisect_left
from itertools import accumulate

from miles_sim.engine.clock import Timing
from miles_sim.engine.flight import Answered

_LATENCY = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_QUEUE = (
    *(0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200, 300),
    *(400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000),
)
_STEP = (
    *(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8),
    *(1, 2, 4, 6, 8),
)
"""Bounds of all releases; one of them may tell fewer."""


class Histogram:
    """Observations by upper bound, bounds included."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def cumulative(self) -> list[int]:
        """Observations at or below each bound, then all."""
        return list(accumulate(self.counts))


class Statistics:
    """Counters over all finished requests of one engine."""

    def __init__(self, *, times: bool = True) -> None:
        """`times`: histograms are kept, too."""
        self._times = times
        self._last: Answered | None = None
        self.requests = self.aborted = self.retracted = 0
        self.prompt_tokens = self.cached_tokens = self.generated_tokens = 0
        self.drafted = self.accepted = self.verify_steps = 0
        self.accept_length = self.accept_rate = 0.0
        """Of the last request with a verify step."""
        self.queue_time = Histogram(_QUEUE)
        self.first_token = Histogram(_LATENCY)
        self.between_tokens = Histogram(_STEP)
        self.per_token = Histogram(_STEP)
        self.latency = Histogram((*_LATENCY, 600, 1200, 1800, 2400))

    @property
    def hit_rate(self) -> float:
        """Of the last request that ran."""
        last = self._last
        return last.cached_tokens / last.asked.prompt.size if last and last.asked.prompt.size else 0.0

    def count(self, answered: Answered) -> None:
        """A request is done."""
        self.retracted += answered.retractions
        if answered.finish_reason["type"] == "abort":
            self.aborted += 1
            if answered.from_queue:
                return
        self.requests += 1
        self._last = answered
        output = len(answered.output_ids)
        self.prompt_tokens += answered.asked.prompt.size
        self.cached_tokens += answered.cached_tokens
        self.generated_tokens += output
        spec = answered.spec
        if spec is not None and spec.verify_ct:
            self.drafted += spec.drafted
            self.accepted += spec.accepted
            self.verify_steps += spec.verify_ct
            self.accept_length = 1 + spec.accepted / spec.verify_ct
            self.accept_rate = spec.accepted / spec.drafted
        if self._times:
            self._observe(answered.timing, output)

    def _observe(self, timing: Timing, output: int) -> None:
        first, latency = timing.first_token_latency, timing.latency
        self.queue_time.observe(timing.queue_time)
        self.first_token.observe(first)
        self.latency.observe(latency)
        if output > 1:
            each = (latency - first) / (output - 1)
            self.per_token.observe(each)
            self.between_tokens.observe(each, output - 1)
