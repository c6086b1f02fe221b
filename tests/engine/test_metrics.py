"""Prometheus metrics: the release's names, figures that agree with the ledger."""

import re
from collections.abc import Callable

import httpx
import pytest

from miles_sim.engine import profiles
from miles_sim.engine.engine import Engine
from miles_sim.engine.metrics import exposition
from miles_sim.engine.prompt import Prompt
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.statistics import Histogram

Make = Callable[..., Engine]


def ask(engine: Engine, *ids: int) -> None:
    engine.submit(Prompt(ids, ""), Sampling(max_new_tokens=9), endpoint="generate")


def value(text: str, name: str) -> float:
    (found,) = re.findall(rf"^sglang:{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
    return float(found)


@pytest.mark.parametrize("profile", profiles.names())
def test_all_names_of_the_release_are_there_with_a_type_each(make_engine: Make, profile: str) -> None:
    engine = make_engine(profile=profile, metrics=True)
    typed = re.findall(r"^# TYPE sglang:(\S+) (gauge|counter|histogram)$", exposition(engine), re.MULTILINE)
    assert tuple(name for name, _ in typed) == engine.release.metrics
    assert all((kind == "counter") is name.endswith("_total") for name, kind in typed)


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
    assert value(text, "num_aborted_requests_total") == 0


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
