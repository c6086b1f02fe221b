"""Counters: what the engine counted, and what of it reaches the driver and the plots."""

from collections.abc import Iterable, Mapping

from miles_sim.ledger import Generation
from miles_sim.targets.observation import SampleView
from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.rule import RolloutCase

from ._struck import is_harmed
from ._truth import close, counted, metric, must_be_rejected, pools, ratio, spec_sums, trained

_SPEC = {"spec_info"}
_MISS = "the engine's own counts (SGLang: accepted drafts, proposed drafts, verify steps, completion_tokens)"


@rule(
    "counters/collected-when-on",
    level="meaning",
    needs=_SPEC,
    reason="Speculative decoding cannot be tuned on figures that are zero whatever it does.",
    source="miles PR #2028; design 6.2",
)
def collected_when_on(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """With speculative decoding on, each sample carries spec_info, and it is not all zero."""
    expected = _expected(case, rollout, sample)
    if expected is not None and any(expected.values()):
        seen = counted(sample)
        see.that(any(seen.values()), "no speculative counter was collected", expected=expected, found=seen)


@rule(
    "counters/absent-when-off",
    level="meaning",
    needs=_SPEC,
    severity="should",
    reason="A plotted 0.0 reads as a failing draft model where there is none.",
    source="miles Sample.update_from_meta_info, metrics; design 6.2",
)
def absent_when_off(case: Case, see: Recorder) -> None:
    """With speculative decoding off, no sample counts anything and no speculative metric is stated."""
    if case.scenario.engine.speculative is not None:
        return
    for rollout in case.rollouts:
        for number, sample in enumerate(rollout.samples):
            where = f"rollout {rollout.number}, sample {number}"
            see.equal(_nonzero(sample), {}, "speculative counters without speculative decoding", where)
    batch = case.observation.batch
    for name in ("spec_accept_length", "spec_accept_rate"):
        if batch is not None and batch.metrics is not None:
            see.equal(metric(batch.metrics, name), None, f"{name} is stated without speculative decoding", "metrics")


@rule(
    "counters/missing-keys-tolerated",
    level="meaning",
    needs=_SPEC,
    reason="An engine leaves its speculative keys out of a reply without a verify step; that must not cost a rollout.",
    source="SGLang 0.5.8 and later: no spec_* key where spec_verify_ct is 0",
)
def missing_keys_tolerated(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """A reply without speculative keys neither fails its rollout nor disturbs the sums of the others."""
    failed = rollout.view.error is not None and is_harmed(case, rollout)
    if any(g.spec is not None and g.spec.verify_ct == 0 for g in rollout.kept) and not failed:
        see.equal(rollout.view.error, None, "a reply without speculative keys failed its rollout")
    for number, sample, found in trained(rollout):
        if any(g.spec is not None and g.spec.verify_ct == 0 for g in found.generations):
            see.equal(
                counted(sample), spec_sums(found.generations), f"counters differ from {_MISS}", f"sample {number}"
            )


@rule(
    "counters/absent-setting-tolerated",
    level="meaning",
    reason="Code that reads a setting which is not there fails every rollout, speculative or not.",
    source="miles PR #2028 and #2035 (sglang_speculative_algorithm read directly)",
)
def absent_setting_tolerated(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """Without a speculative algorithm in the settings no rollout fails for want of one."""
    if case.scenario.engine.speculative is None and not must_be_rejected(case, rollout.input):
        error = rollout.view.error
        wanted = error is not None and (error.type == "AttributeError" or "speculative" in error.message)
        see.that(not wanted, "the rollout failed", expected="samples", found=error.message if error else "")


@rule(
    "counters/merge-sums",
    level="meaning",
    needs=_SPEC,
    after={"counters/collected-when-on"},
    reason="Counters of one turn alone pass for those of the whole sample.",
    source="miles merge_samples; design 6.2",
)
def merge_sums(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """A sample of several turns carries the sum over all generations on its path, each counted whole."""
    expected = _expected(case, rollout, sample)
    if expected is not None and len(rollout.alignment(sample).spans) > 1:
        see.equal(counted(sample), expected, f"sums differ from {_MISS}")


@rule(
    "counters/reaches-driver",
    level="meaning",
    needs=_SPEC,
    after={"counters/collected-when-on"},
    reason="Counted on the server, lost on the way: the driver's metric stays 0.0 though the engine reports 1.87.",
    source="miles samples codec without spec_info; design 6.2",
)
def reaches_driver(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """Verify steps and completion tokens at the driver are the engine's."""
    expected = _expected(case, rollout, sample)
    if expected is None:
        return
    for field in ("spec_verify_ct", "completion_token_num"):
        see.equal(counted(sample)[field], expected[field], f"{field} at the driver")


@rule(
    "counters/renamed-keys-read",
    level="meaning",
    needs=_SPEC,
    after={"counters/collected-when-on"},
    reason="Reading a retired spelling gives an accept rate of 0.0 beside a true accept length.",
    source="SGLang renamed the draft counters in 0.5.11 and 0.5.12, the last alias left by 0.5.23; design 6.2",
)
def renamed_keys_read(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """Accepted and proposed drafts arrive under whichever of its names the engine's release sends them."""
    expected = _expected(case, rollout, sample)
    if expected is None or not expected["spec_draft_token_num"]:
        return
    for field in ("spec_accept_token_num", "spec_draft_token_num"):
        message = f"{field} under profile {case.scenario.engine.profile}"
        see.equal(counted(sample)[field], expected[field], message)


@rule(
    "counters/accept-length-true",
    level="meaning",
    needs=_SPEC,
    severity="should",
    after={"counters/collected-when-on", "counters/reaches-driver"},
    reason="Accept length is the speed-up of speculative decoding; a wrong one misleads every decision on it.",
    source="SGLang: spec_accept_length = completion_tokens / spec_verify_ct; design 6.2",
)
def accept_length_true(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """Accept length is completion tokens over verify steps of the path; unavailable where no step ran."""
    sums = _expected(case, rollout, sample)
    if sums is None:
        return
    expected = ratio(sums["completion_token_num"], sums["spec_verify_ct"])
    stated = sample.spec_info.accept_length if sample.spec_info else None
    see.that(close(stated, expected), "accept_length", expected=expected, found=stated)


@rule(
    "counters/accept-rate-honest",
    level="meaning",
    needs=_SPEC,
    severity="should",
    after={"counters/collected-when-on", "counters/renamed-keys-read"},
    reason="0.0 says that every draft was refused; nothing counted is another thing.",
    source="SGLang: spec_accept_rate = accepted / proposed drafts; design 6.2",
)
def accept_rate_honest(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """Accept rate is accepted over proposed drafts of the path; unavailable, never 0.0, where none was proposed."""
    sums = _expected(case, rollout, sample)
    if sums is None:
        return
    expected = ratio(sums["spec_accept_token_num"], sums["spec_draft_token_num"])
    stated = sample.spec_info.accept_rate if sample.spec_info else None
    see.that(close(stated, expected), "accept_rate", expected=expected, found=stated)


@rule(
    "counters/counted-once-across-siblings",
    level="meaning",
    needs=_SPEC | {"batch.metrics"},
    severity="should",
    after={"counters/collected-when-on", "counters/reaches-driver", "counters/renamed-keys-read"},
    reason="Shared turns counted once a leaf, or ratios averaged over samples, move the figure away from the engine's.",
    source="design 6.2; miles metrics average per-sample ratios",
)
def counted_once_across_siblings(case: Case, see: Recorder) -> None:
    """The batch's accept length and rate are ratios of sums over its distinct generations, each counted once."""
    batch = case.observation.batch
    if case.scenario.engine.speculative is None or batch is None or batch.metrics is None:
        return
    for name, above, below in (
        ("spec_accept_length", "completion_token_num", "spec_verify_ct"),
        ("spec_accept_rate", "spec_accept_token_num", "spec_draft_token_num"),
    ):
        sums = [spec_sums(pool) for pool in pools(case)]
        _see_pooled(case, see, name, [ratio(s[above], s[below]) for s in sums])


@rule(
    "counters/prefix-cache-true",
    level="meaning",
    needs={"prefix_cache_info"},
    severity="should",
    reason="Cache hit rate decides on routing and batch sizes.",
    source="SGLang meta_info cached_tokens and prompt_tokens; miles PrefixCacheInfo",
)
def prefix_cache_true(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """Cached and prompt tokens of a sample are the sums over the generations on its path."""
    found = rollout.alignment(sample)
    if not found.spans:
        return
    info = sample.prefix_cache_info
    stated = (info.cached_tokens, info.total_prompt_tokens) if info else None
    see.equal(stated, _cache_sums(found.generations), "(cached, prompt) tokens")


@rule(
    "counters/prefix-cache-counted-once",
    level="meaning",
    needs={"prefix_cache_info", "batch.metrics"},
    severity="should",
    after={"counters/prefix-cache-true"},
    reason="A turn that two leaves share was asked once; counted twice it raises the hit rate.",
    source="miles PR #2767; design 6.2",
)
def prefix_cache_counted_once(case: Case, see: Recorder) -> None:
    """The batch's cache hit rate, and cached tokens a sample, are of sums over its distinct generations."""
    batch = case.observation.batch
    if batch is None or batch.metrics is None:
        return
    sums = [_cache_sums(pool) for pool in pools(case)]
    _see_pooled(case, see, "prefix_cache_hit_rate", [ratio(*pair) for pair in sums])
    count = sum(len(rollout.samples) for rollout in case.rollouts)
    if metric(batch.metrics, "avg_cached_tokens_per_sample") is not None:
        _see_pooled(case, see, "avg_cached_tokens_per_sample", [ratio(cached, count) for cached, _ in sums])


@rule(
    "counters/weight-versions-in-order",
    level="meaning",
    needs={"weight_versions"},
    reason="Off-policy correction and staleness filters read which weights sampled which turn.",
    source="SGLang meta_info weight_version; miles Sample.weight_versions",
)
def weight_versions_in_order(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """A sample lists the weight version of each generation on its path, first turn first."""
    found = rollout.alignment(sample)
    if not found.spans:
        return
    expected = tuple(g.weight_version for g in found.generations)
    see.equal(sample.weight_versions, expected, "weight_versions")


@rule(
    "counters/direct-session-parity",
    level="meaning",
    needs={"session.direct"},
    reason="A counter that one path collects and the other does not makes two runs of one model incomparable.",
    source="miles PR #2028: update_from_meta_info counted on the direct path alone; design 6.2: one collector for both",
)
def direct_session_parity(cases: Mapping[str, Case], see: Recorder) -> None:
    """What is right of a sample's counters where the engine is asked directly is right through a session server."""
    direct = cases.get("direct")
    if direct is None:
        return
    for name, other in cases.items():
        for one, two in zip(direct.rollouts, other.rollouts, strict=True):
            if other is not direct and len(one.samples) == len(two.samples) == 1:
                for field, holds in _right(two).items():
                    where = f"rollout {one.number}, direct and {name}"
                    see.equal(holds, _right(one)[field], f"{field} is right on one path alone", where)


def _right(rollout: RolloutCase) -> dict[str, bool]:
    """Of a rollout of one sample: which of its counters are the engine's."""
    (sample,), (found,) = rollout.samples, rollout.alignments
    spec, info = spec_sums(found.generations), sample.prefix_cache_info
    right = {field: value == spec[field] for field, value in counted(sample).items()}
    cached = (info.cached_tokens, info.total_prompt_tokens) if info else None
    right["prefix_cache_info"] = cached == _cache_sums(found.generations)
    right["weight_versions"] = sample.weight_versions == tuple(g.weight_version for g in found.generations)
    return right


def _expected(case: Case, rollout: RolloutCase, sample: SampleView) -> dict[str, int] | None:
    """Sums over the sample's path; None without speculative decoding or without a generation."""
    found = rollout.alignment(sample)
    if case.scenario.engine.speculative is None or not found.spans:
        return None
    return spec_sums(found.generations)


def _see_pooled(case: Case, see: Recorder, name: str, allowed: list[float | None]) -> None:
    batch = case.observation.batch
    found = metric(batch.metrics, name) if batch is not None and batch.metrics is not None else None
    see.that(any(close(found, value) for value in allowed), name, expected=allowed[0], found=found, detail="metrics")


def _nonzero(sample: SampleView) -> dict[str, int]:
    return {field: value for field, value in counted(sample).items() if value}


def _cache_sums(generations: Iterable[Generation]) -> tuple[int, int]:
    generations = tuple(generations)
    return sum(g.cached_tokens for g in generations), sum(len(g.prompt_ids) for g in generations)
