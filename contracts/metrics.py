"""Metrics: what is plotted of a batch."""

import math

from miles_sim.verify import Case, Recorder, rule

_SHARES = ("_ratio", "_rate", "_frac", "_percentage")
"""Ends of the names of metrics that are a part of a whole."""


@rule(
    "metrics/sane",
    level="meaning",
    needs={"batch.metrics"},
    severity="should",
    reason="An infinite or negative throughput, or a share above one, spoils every average that it goes into.",
    source="miles _compute_perf_metrics_from_samples: tokens over rollout time less tool time; design 6.8",
)
def sane(case: Case, see: Recorder) -> None:
    """Every metric is a finite number and none is negative; a ratio, rate or fraction is at most 1."""
    batch = case.observation.batch
    for name, value in sorted((batch.metrics or {}).items()) if batch is not None else ():
        most = 1 if any(end in name for end in _SHARES) else math.inf
        see.that(
            math.isfinite(value) and 0 <= value <= most,
            f"{name} is no such figure",
            expected=f"0..{most}",
            found=value,
            detail="metrics",
        )
