"""The page in real Chromium: opens, filters, shows a violation and a sample, fits a phone, logs no error.

Runs where `MILES_SIM_CHROMIUM` names a Chromium; `.ci/run` installs one.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from miles_sim.report.page import page

from .page_run import run as play

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ["MILES_SIM_CHROMIUM"], args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = play()
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(page(made.report, made.cases), encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def opened(browser: "Browser", url: str, request: pytest.FixtureRequest) -> "Iterator[Page]":
    """The page at desk size unless a test says otherwise; whatever it logs, raises or asks for fails the test."""
    options: dict[str, Any] = {"viewport": DESK} | getattr(request, "param", {})
    context = browser.new_context(**options)
    tab = context.new_page()
    faults: list[str] = []
    tab.on("console", lambda message: faults.append(f"{message.type}: {message.text}"))
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.on("request", lambda asked: faults.append(asked.url) if not asked.url.startswith(("file:", "data:")) else None)
    tab.goto(url)
    yield tab
    context.close()
    assert faults == []


def _rows(tab: "Page") -> list[str]:
    return tab.locator(".matrix tbody tr:visible").evaluate_all("rows => rows.map(row => row.dataset.case)")


def _columns(tab: "Page") -> list[str]:
    return [text.strip() for text in tab.locator(".matrix th.rule:visible").all_inner_texts()]


def test_the_page_says_the_verdict_first(opened: "Page") -> None:
    assert "does not hold" in opened.locator("h1").inner_text()
    assert "miles-sim" in opened.title()
    assert opened.locator("#wrong article").count() == 1


def test_a_text_leaves_the_scenarios_that_it_names(opened: "Page") -> None:
    everything = _rows(opened)
    opened.locator("#text").fill("retry")
    assert _rows(opened) == [name for name in everything if "retry" in name]
    assert set(opened.locator("details.case:visible").evaluate_all("all => all.map(one => one.dataset.case)")) == {
        "retry-middle/v1",
        "retry-middle/v2",
    }
    opened.locator("#text").fill("")
    assert _rows(opened) == everything


def test_a_text_leaves_the_contracts_that_it_names(opened: "Page") -> None:
    opened.locator("#text").fill("tokens/text")
    assert _columns(opened) == ["text-agrees"]
    assert len(_rows(opened)) > 4
    assert opened.locator("#wrong article:visible").count() == 0


def test_a_text_that_names_nothing_says_so(opened: "Page") -> None:
    opened.locator("#text").fill("no such thing")
    assert _rows(opened) == []
    assert opened.locator("#told").inner_text() == "nothing matches"


def test_an_area_leaves_its_contracts(opened: "Page") -> None:
    opened.locator("#area").select_option("house")
    assert _columns(opened) == ["no-tools"]
    assert opened.locator(".matrix .areas th:visible").all_inner_texts() == ["house"]


def test_a_verdict_leaves_where_it_was_given(opened: "Page") -> None:
    chip = opened.locator('.chip[data-verdict="violation"]')
    chip.click()
    assert (_rows(opened), _columns(opened)) == (["tools/v1", "tools/v2"], ["no-tools"])
    assert opened.locator("#told").inner_text() == "2 cases × 1 contracts"
    chip.click()
    assert len(_columns(opened)) > 20


def test_from_a_violation_to_the_tokens_that_it_means(opened: "Page") -> None:
    card = opened.locator("#wrong article")
    assert "a tool & is called" in card.inner_text()
    assert "^^^" in card.inner_text()
    card.locator(".where a").click()
    case = opened.locator('details.case[data-case="tools/v1"]')
    case.locator(".piece.marked").first.wait_for()
    assert case.locator(".piece.marked").count() == 3
    assert case.locator(".piece.trained").count() > 0
    assert "miles-sim verify --scenario tools/v1 --contract house/no-tools" in case.inner_text()
    assert opened.url.endswith("#case/tools/v1")


def test_a_case_shows_its_tree_and_its_counters_beside_the_ledgers(opened: "Page") -> None:
    case = opened.locator('details.case[data-case="subagent-fork-after/v2"]')
    case.locator("summary").click()
    assert "└─ plan say" in case.locator("pre").inner_text()
    assert case.locator(".counters").first.locator("th").all_inner_texts()[:3] == ["counter", "sample", "ledger"]
    assert case.locator(".segment").count() == 8


def test_a_token_tells_its_id_place_and_logprob(opened: "Page") -> None:
    case = opened.locator('details.case[data-case="tools/v1"]')
    case.locator("summary").click()
    title = case.locator(".piece.trained").first.get_attribute("title") or ""
    assert [word.split()[0] for word in title.split(", ")] == ["token", "id", "trained", "logprob"]


def test_a_link_to_a_case_opens_it(opened: "Page", url: str) -> None:
    opened.goto(f"{url}#case/retry-middle/v2")
    opened.reload()
    assert opened.locator('details.case[data-case="retry-middle/v2"]').get_attribute("open") is not None


def test_every_filter_works_from_the_keyboard(opened: "Page") -> None:
    opened.locator("#text").focus()
    opened.keyboard.press("Tab")
    opened.keyboard.press("Tab")
    opened.keyboard.press("Tab")
    opened.keyboard.press("Space")
    assert opened.locator('.chip[aria-pressed="true"]').count() == 1


@pytest.mark.parametrize("opened", [{"viewport": PHONE}], indirect=True)
def test_a_phone_scrolls_down_and_never_sideways(opened: "Page") -> None:
    for name in ("tools/v1", "subagent-fork-after/v2"):
        opened.evaluate(f"location.hash = 'case/{name}'")
        opened.locator(f'details.case[data-case="{name}"] .piece').first.wait_for()
    assert opened.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    smallest = opened.locator("p:visible, td:visible, code:visible, .piece:visible").evaluate_all(
        "all => Math.min(...all.map(one => parseFloat(getComputedStyle(one).fontSize)))"
    )
    assert smallest >= 11


def _contrast(first: str, second: str) -> float:
    """WCAG 2 contrast ratio of two `rgb(…)` colours."""

    def luminance(colour: str) -> float:
        channels = [float(word) / 255 for word in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("opened", [{"color_scheme": "light"}, {"color_scheme": "dark"}], indirect=True)
def test_tokens_and_verdicts_can_be_read_in_either_scheme(opened: "Page") -> None:
    opened.locator('details.case[data-case="tools/v1"] summary').click()
    pairs = opened.locator(".piece:visible, td.violation, .badge").evaluate_all(
        "all => all.map(one => { const s = getComputedStyle(one); return [s.color, s.backgroundColor]; })"
    )
    assert pairs
    assert min(_contrast(ink, paper) for ink, paper in {tuple(pair) for pair in pairs}) >= 4.5


@pytest.mark.parametrize("opened", [{"java_script_enabled": False}], indirect=True)
def test_without_a_script_the_violations_and_the_matrix_remain(opened: "Page") -> None:
    assert opened.locator("#wrong article").is_visible()
    assert len(_rows_without_script(opened)) > 4


def _rows_without_script(tab: "Page") -> list[str]:
    return tab.locator(".matrix tbody tr").all_inner_texts()


def test_a_screenshot_is_left_where_one_is_asked_for(opened: "Page", tmp_path: Path) -> None:
    folder = Path(os.environ.get("MILES_SIM_SCREENSHOTS", tmp_path))
    for name, size in (("desk", DESK), ("phone", PHONE)):
        opened.set_viewport_size(size)  # type: ignore[arg-type]
        opened.screenshot(path=folder / f"{name}.png")
        assert (folder / f"{name}.png").stat().st_size > 10_000
