"""The page as a file: whole, self-contained, the same bytes each time, safe against what messages hold."""

import json
import re
from typing import Any

import pytest

from miles_sim.report.page import SYMBOLS, page
from miles_sim.verify.report import Verdict
from miles_sim.verify.run import Run

from .page_run import run as play


@pytest.fixture(scope="module")
def run() -> Run:
    return play()


@pytest.fixture(scope="module")
def html(run: Run) -> str:
    return page(run.report, run.cases)


def _data(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html)
    assert found
    return json.loads(found[1])


def test_the_same_run_gives_the_same_page(html: str) -> None:
    again = play()
    assert page(again.report, again.cases) == html


def test_the_page_asks_for_nothing_from_outside(html: str) -> None:
    assert not re.search(r"https?://|//\w+\.|url\(|@import|\bsrc=|<link(?![^>]*data:)", html.split("<body>")[0])
    assert "default-src 'none'" in html
    assert not re.search(r"<(img|iframe|link|script)[^>]*(src|href)=\"(?!data:)", html)


def test_the_matrix_has_each_case_and_each_contract_with_a_symbol(html: str, run: Run) -> None:
    rows = re.findall(r'<tr data-case="([^"]+)">(.*?)</tr>', html)
    assert [name for name, _ in rows] == list(dict.fromkeys(result.scenario for result in run.report.results))
    for name, cells in rows:
        told = re.findall(r"<td(?: class=\"(\w+)\")?>(.?)</td>", cells)
        assert len(told) == len(run.report.contracts), name
        assert all(symbol == (SYMBOLS[Verdict(verdict)] if verdict else "") for verdict, symbol in told)


def test_no_two_verdicts_share_a_symbol() -> None:
    assert len(set(SYMBOLS.values())) == len(Verdict)


def test_a_violation_stands_in_the_page_with_its_sample_and_command(html: str) -> None:
    (card,) = re.findall(r'<article[^>]*data-contract="house/no-tools".*?</article>', html, re.DOTALL)
    assert "miles-sim verify --scenario tools/v1 --contract house/no-tools" in card
    assert "a tool &amp; is called" in card
    assert "No reply &lt;b&gt;calls&lt;/b&gt; a tool." in card
    assert "^^^" in card


def test_each_token_of_a_sample_is_there_once_with_author_mask_and_logprob(html: str, run: Run) -> None:
    told = _data(html)["cases"]["subagent-fork-after/v2"]["rollouts"][0]["samples"]
    samples = run.cases["subagent-fork-after/v2"].observation.rollouts[0].samples
    assert len(told) == len(samples) == 2
    for shown, sample in zip(told, samples, strict=True):
        tokens = [token for part in shown["segments"] for token in part["tokens"]]
        assert sum(part["ids"] for part in shown["segments"]) == len(sample.tokens)
        assert [sample.tokens[at] for _, _, at, *_ in tokens] == [id for _, id, *_ in tokens]
        assert sample.loss_mask is not None
        assert sample.rollout_log_probs is not None
        border = len(sample.tokens) - sample.response_length
        for _, _, at, trained, marked, logprob in tokens:
            assert trained == (sample.loss_mask[at - border] if at >= border else 0)
            assert logprob == (sample.rollout_log_probs[at - border] if at >= border else None)
            assert not marked


def test_tokens_that_a_finding_means_are_marked_in_their_sample_alone(html: str) -> None:
    cases = _data(html)["cases"]
    marked = {
        name: [
            token[2]
            for rollout in case["rollouts"]
            for s in rollout["samples"]
            for p in s["segments"]
            for token in p["tokens"]
            if token[4]
        ]
        for name, case in cases.items()
    }
    assert {name: at for name, at in marked.items() if at} == {"tools/v1": [3, 4, 5], "tools/v2": [3, 4, 5]}


def test_a_counter_that_differs_from_the_ledger_says_so(run: Run) -> None:
    case = run.cases["tools/v2"]
    (rollout,) = case.observation.rollouts
    spec = rollout.samples[0].spec_info
    assert spec is not None
    lying = rollout.samples[0].model_copy(update={"spec_info": spec.model_copy(update={"spec_draft_token_num": 0})})
    observation = case.observation.model_copy(update={"rollouts": (rollout.model_copy(update={"samples": (lying,)}),)})
    changed = type(case)(case.scenario, case.session, case.ledger, observation)
    (sample,) = _data(page(run.report, {"tools/v2": changed}))["cases"]["tools/v2"]["rollouts"][0]["samples"]
    assert [row[0] for row in sample["counters"] if not row[3]] == ["drafted"]


def test_a_case_full_of_markup_cannot_leave_its_data(run: Run) -> None:
    case = run.cases["tools/v2"]
    scenario = case.scenario.model_copy(update={"title": "</script><script>alert(1)</script>"})
    html = page(run.report, {"tools/v2": type(case)(scenario, case.session, case.ledger, case.observation)})
    assert "<script>alert" not in html
    assert _data(html)["cases"]["tools/v2"]["title"] == scenario.title
