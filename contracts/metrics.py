"""Metrics: what is plotted of a batch."""

import math

from miles_sim.verify import Case, Recorder, rule

from ._truth import close, mask, metric, pools

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


@rule(
    "metrics/throughput-true",
    level="meaning",
    needs={"batch.metrics"},
    severity="should",
    reason="Runs are compared by ids a second; masked or shared ids that are counted in flatter all of them.",
    source="miles compute_perf_metrics_from_samples; design 6.8",
)
def throughput_true(case: Case, see: Recorder) -> None:
    """Ids a second are those of the samples, trainable ones and sampled ones told apart, over the batch's time."""
    batch, seconds = case.observation.batch, case.scenario.batch.rollout_time
    if batch is None or batch.metrics is None or not seconds or batch.dropped:
        return
    samples = [sample for rollout in case.rollouts for sample in rollout.samples]
    whole, trained = [s.response_length for s in samples], [sum(mask(sample)) for sample in samples]
    expected = {
        "rollout_time": {float(seconds)},
        "tokens_per_gpu_per_sec": {sum(whole) / seconds},
        "effective_tokens_per_gpu_per_sec": {sum(trained) / seconds},
        "longest_sample_tokens_per_sec": {max(whole) / seconds},
        "longest_effective_sample_tokens_per_sec": {max(trained) / seconds},
        "generated_tokens_per_gpu_per_sec": {sum(len(g.output_ids) for g in pool) / seconds for pool in pools(case)},
    }
    for name, values in expected.items():
        found = metric(batch.metrics, name)
        if found is not None:
            see.that(
                any(close(found, value, 1e-6) for value in values),
                f"{name} is not that of the samples",
                expected=sorted(values),
                found=found,
                detail="metrics",
            )
    told = metric(batch.metrics, "tokens_per_gpu_per_sec") is not None
    see.that(told, "no ids a second are told", expected=expected["tokens_per_gpu_per_sec"], found="none")
