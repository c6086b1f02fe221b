"""Prometheus metrics: the release's names, figures that agree with the ledger."""

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from miles_sim.engine import metrics, profiles
from miles_sim.engine.engine import Engine
from miles_sim.engine.metric_names import metrics_of
from miles_sim.engine.metrics import exposition
from miles_sim.engine.prompt import Prompt
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.statistics import Histogram

Make = Callable[..., Engine]
Post = Callable[..., Any]


def ask(engine: Engine, *ids: int) -> None:
    engine.submit(Prompt(ids, ""), Sampling(max_new_tokens=9), endpoint="generate")


def value(text: str, name: str) -> float:
    (found,) = re.findall(rf"^sglang:{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
    return float(found)


@pytest.mark.parametrize("profile", profiles.names())
def test_all_names_of_the_release_are_there_with_help_and_type(make_engine: Make, profile: str) -> None:
    engine = make_engine(profile=profile, metrics=True, speculative={})
    for _ in range(2):
        ask(engine, 1, 2, 3)
    text = exposition(engine)
    typed = re.findall(r"^# HELP sglang:(\S+) (.+)\n# TYPE sglang:\1 (\S+)\nsglang:\1\S* ", text, re.MULTILINE)
    seldom = {"num_retracted_requests_total", "num_aborted_requests_total"}
    assert typed == [(m.name, m.help, m.type) for m in metrics_of(profile) if m.name not in seldom]
    assert all((kind == "counter") is name.endswith("_total") for name, _, kind in typed)


@pytest.mark.parametrize("profile", profiles.names())
def test_what_was_not_counted_yet_is_not_there(make_engine: Make, profile: str) -> None:
    engine = make_engine(profile=profile, metrics=True)
    fresh = set(re.findall(r"^# TYPE sglang:\S+ (\S+)$", exposition(engine), re.MULTILINE))
    ask(engine, 1, 2, 3)
    assert fresh == {"gauge"}
    assert "spec_verify_calls_total" not in exposition(engine)
    assert value(exposition(engine), "spec_accept_length") == 0


@pytest.mark.parametrize(
    ("profile", "bounds", "labels"),
    [("sglang-0.5.6", 37, set()), ("sglang-0.5.16", 41, {"cache_source"}), ("sglang-0.5.20", 41, {"is_streaming"})],
)
def test_bounds_and_labels_are_the_releases(make_engine: Make, profile: str, bounds: int, labels: set[str]) -> None:
    engine = make_engine(profile=profile, metrics=True)
    for _ in range(2):
        ask(engine, 1, 2, 3)
    text = exposition(engine)
    assert len(re.findall(r"^sglang:queue_time_seconds_bucket", text, re.MULTILINE)) == bounds
    assert labels <= set(re.findall(r'(\w+)="', text))
    assert ('is_streaming="false"' in text) is (profile == "sglang-0.5.20")
    assert 'sglang:num_running_reqs{model_name="sim",engine_type="unified",tp_rank="0"' in text


def test_every_bound_that_a_release_tells_is_counted(make_engine: Make) -> None:
    counted = {n: {*map(float, h.bounds)} for n, h in metrics._histograms(make_engine().statistics).items()}
    for profile in profiles.names():
        told = {metric.name: metric.bounds for metric in metrics_of(profile) if metric.type == "histogram"}
        assert all(bounds and bounds <= counted[name] for name, bounds in told.items())


def test_the_cache_is_told_by_what_is_in_use_and_what_may_go(make_engine: Make) -> None:
    engine = make_engine(metrics=True, cache_tokens=100)
    ask(engine, 1, 2, 3)
    text, size = exposition(engine), engine.prefix_cache.size
    assert (value(text, "kv_used_tokens"), value(text, "kv_evictable_tokens")) == (0, size)
    assert value(text, "kv_available_tokens") == 100 - size


def test_figures_follow_the_ledger(make_engine: Make) -> None:
    engine = make_engine(speculative={}, metrics=True)
    for ids in ((1, 2, 3), (1, 2, 3), (4,)):
        ask(engine, *ids)
    text, ledger = exposition(engine), engine.generations
    assert value(text, "num_requests_total") == 3
    assert value(text, "prompt_tokens_total") == 7
    assert value(text, "cached_tokens_total") == 2
    assert value(text, "generation_tokens_total") == sum(len(g.output_ids) for g in ledger)
    assert value(text, "spec_verify_calls_total") == sum(g.spec.verify_ct for g in ledger if g.spec)
    assert value(text, "e2e_request_latency_seconds_count") == 3


def test_streamed_requests_are_told_apart_by_releases_that_do(make_engine: Make, post: Post) -> None:
    body = {"text": "go", "sampling_params": {"max_new_tokens": 3}}
    for profile, apart in (("sglang-0.5.16", False), ("sglang-0.5.20", True)):
        engine = make_engine(profile=profile, metrics=True)
        for stream in (True, False, True):
            post(engine, "/generate", **body, stream=stream)
        told = dict(re.findall(r"^sglang:num_requests_total\{(.*)\} (\S+)$", exposition(engine), re.MULTILINE))
        streaming = {labels.partition('is_streaming="')[2].rstrip('"'): float(count) for labels, count in told.items()}
        assert streaming == ({"false": 1, "true": 2} if apart else {"": 3})


async def test_metrics_are_served_only_when_they_are_on(make_engine: Make) -> None:
    for on, status in ((True, 200), (False, 404)):
        app = make_engine(metrics=on).app
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://engine") as client:
            answer = await client.get("/metrics")
        assert answer.status_code == status
        if on:
            assert answer.headers["content-type"].startswith("text/plain; version=")


def test_a_histogram_counts_a_value_at_its_bound_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for number in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(number)
    assert histogram.cumulative() == [2, 3, 4]
    assert histogram.sum == 12.0
