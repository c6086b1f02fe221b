"""`miles-sim chaos` as a user starts it, in front of an engine that is another process; what docs/chaos.md shows."""

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from miles_sim.cli import app

DOCS = (Path(__file__).parents[2] / "docs" / "chaos.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
COMMANDS = [
    shlex.split(line[2:]) for language, text in BLOCKS if language == "console" for line in text.splitlines() if line
]
SERVE, DRAWN, CURL, PLANNED = COMMANDS
PLAN = next(text for language, text in BLOCKS if language == "yaml")
LINE = next(json.loads(text) for language, text in BLOCKS if language == "json")


@contextmanager
def started(words: list[str], folder: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A miles-sim process and the URL that it serves; with `--json` it says so on standard error."""
    process = subprocess.Popen(
        [sys.executable, "-m", "miles_sim.cli", *words[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        cwd=folder,
    )
    try:
        told = process.stderr if "--json" in words else process.stdout
        assert told is not None
        line = told.readline()
        found = re.search(r"http://\S+?(?=[;\s])", line)
        assert found, line or process.communicate()[1]
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()


def placed(words: list[str], upstream: str = "") -> list[str]:
    """The command as shown, but on a free port and before this upstream."""
    given = {"--port": "0", "--upstream": upstream}
    return [given.get(words[n - 1], word) if n else word for n, word in enumerate(words)]


def stopped(process: "subprocess.Popen[str]", by: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
    process.send_signal(by)
    out, _ = process.communicate(timeout=30)
    return process.returncode, out


def test_the_draw_that_the_page_shows_strikes_alike_in_each_run(tmp_path: Path) -> None:
    body = json.loads(CURL[CURL.index("-d") + 1])
    found = []
    with started(placed(SERVE), tmp_path) as (_, engine):
        for _ in range(2):
            with started(placed(DRAWN, engine), tmp_path) as (process, url), httpx.Client(base_url=url) as client:
                statuses = []
                for n in range(12):
                    try:
                        statuses.append(client.post("/generate", json={**body, "text": str(n)}).status_code)
                    except httpx.TransportError:
                        statuses.append(0)
                code, out = stopped(process)
            told = json.loads(out)
            lines = [json.loads(line) for line in (tmp_path / "strikes.jsonl").read_text("utf-8").splitlines()]
            assert (code, told["requests"], told["fired"]) == (0, 12, len(lines))
            assert sum(status != 200 for status in statuses) == len(lines) > 0
            assert all(line.keys() == LINE.keys() for line in lines)
            found.append((statuses, [(line["kind"], line["step"], line["attempt"]) for line in lines]))
    assert found[0] == found[1]


def test_the_plan_that_the_page_shows_lets_the_third_attempt_through(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN, encoding="utf-8")
    with (
        started(placed(SERVE), tmp_path) as (_, engine),
        started(placed(PLANNED, engine), tmp_path) as (process, url),
        httpx.Client(base_url=url) as client,
    ):
        answers = [client.post("/generate", json=json.loads(CURL[-1])) for _ in range(3)]
        code, out = stopped(process, signal.SIGINT)
    assert [answer.status_code for answer in answers] == [429, 429, 200]
    assert answers[0].headers["retry-after"] == "2"
    assert code == 130
    assert json.loads(out)["by_kind"] == [{"kind": "http-429", "fired": 2, "could_not": 0}]


def test_without_json_it_tells_in_words(tmp_path: Path) -> None:
    words = ["miles-sim", "chaos", "--port", "0", "--faults", "payload-rows-short", "--probability", "1", "--upstream"]
    with (
        started(placed(SERVE), tmp_path) as (_, engine),
        started([*words, engine], tmp_path) as (process, url),
    ):
        assert httpx.post(f"{url}/generate", json={"text": "hi"}).status_code == 200
        code, out = stopped(process)
    assert code == 0
    assert "1 requests, 0 struck, 1 could not be struck" in out
    assert re.search(r"payload-rows-short +0 struck +1 could not", out)


@pytest.fixture
def gone() -> str:
    """A URL at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--upstream", "localhost:1"], "upstream: 'localhost:1' is not an http or https URL"),
        (["--upstream", "http://"], "upstream: 'http://' is not an http or https URL"),
        (["--upstream", "http://x:port"], "upstream: 'http://x:port' is no URL"),
        (["--upstream", "http://x", "--faults", "agent-*"], "faults: 'agent-*' names none of the"),
        (["--upstream", "http://x", "--plan", "no-such.yaml"], "no-such.yaml"),
        (["--upstream", "http://x", "--plan", "p.yaml", "--faults", "*"], "leave out --faults or --plan"),
    ],
)
def test_what_is_impossible_exits_2_and_names_it(words: list[str], named: str) -> None:
    result = CliRunner().invoke(app, ["chaos", "--port", "0", *words])
    assert result.exit_code == 2, result.output
    assert named in result.stderr


def test_an_upstream_that_is_not_there_is_refused_by_name(gone: str) -> None:
    result = CliRunner().invoke(app, ["chaos", "--port", "0", "--upstream", gone])
    assert result.exit_code == 2
    assert f"upstream {gone}" in result.stderr


@pytest.mark.parametrize("json", [["--json"], []])
def test_one_that_never_listened_tells_nothing_but_why(json: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["chaos", "--upstream", f"http://127.0.0.1:{port}", "--port", port, *json]
        result = CliRunner().invoke(app, words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"cannot listen on 127.0.0.1:{port}" in result.stderr


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        ("faults: [{kind: http-5o3}]", "kind: 'http-5o3' is not one of the"),
        ("faults: [{kind: agent-crash-before}]", "is of the layer 'agent'"),
        ("faults: [{kind: http-503, where: {rollout: 0}}]", "where.rollout: an engine knows no rollouts"),
        ("fault: []", "fault"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_by_name(plan: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(plan, encoding="utf-8")
    words = ["chaos", "--port", "0", "--upstream", "http://x", "--plan", str(tmp_path / "p.yaml")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2, result.output
    assert named in result.stderr
