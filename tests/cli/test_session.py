"""`miles-sim session` in front of an engine that is another process, as a user starts both."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from miles_sim.cli import app
from miles_sim.rollout.sample import Sample
from miles_sim.rollout.wire import decode_samples


@contextmanager
def started(*words: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A miles-sim process and the URL that it serves."""
    command = [sys.executable, "-m", "miles_sim.cli", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+?(?=[;\s])", line)
        assert found, line or process.communicate()[1]
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_sessions_of_a_served_engine_are_recorded_shown_and_collected(version: str) -> None:
    with (
        started("serve", "--port", "0", "--speculative", "EAGLE") as (_, engine),
        started("session", "--engine", engine, "--port", "0", "--session", version, "--speculative", "EAGLE") as (
            process,
            url,
        ),
        httpx.Client(base_url=url) as client,
    ):
        session = "/sessions/" + client.post("/sessions").json()["session_id"]
        asked: list[Any] = [{"role": "user", "content": "hello"}]
        for text in ("go on", "and on"):
            body = {"model": "sim", "messages": asked, "max_tokens": 20, "seed": 1}
            choice = client.post(f"{session}/v1/chat/completions", json=body).raise_for_status().json()["choices"][0]
            asked += [choice["message"], {"role": "user", "content": text}]
            if choice["finish_reason"] == "length":
                break
        shown = client.get(session).json()
        if version == "v2":
            assert [node["parent"] for node in shown["metadata"]["tree"]["nodes"]] == [None, 0][: len(shown["records"])]
        payload = client.post(f"{session}/samples").raise_for_status().content
        (sample,) = decode_samples(payload, Sample(index=1), session=version).samples  # type: ignore[arg-type]
        assert sample.tokens == shown["metadata"]["accumulated_token_ids"]
        assert sample.spec_info.spec_verify_ct > 0
        assert client.delete(session).status_code == 204
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def test_options_go_before_the_file_and_the_file_before_defaults(tmp_path: Path) -> None:
    from miles_sim.cli.session import chosen_settings

    (tmp_path / "s.yaml").write_text("session: v1\nmax_nodes: 5\nsession_idle_timeout: null\n", encoding="utf-8")
    chosen = chosen_settings(tmp_path / "s.yaml", {"session": "v2", "max_seq_len": None}, idle_timeout=9.0)
    assert (chosen.session, chosen.max_nodes, chosen.session_idle_timeout, chosen.max_seq_len) == ("v2", 5, None, None)
    assert chosen_settings(None, {}, idle_timeout=9.0).session_idle_timeout == 9.0
    assert chosen_settings(None, {}, idle_timeout=0).session_idle_timeout is None


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--session", "v3"], "v3"),
        (["--tokenizer", "gpt"], "'gpt' is no folder, and not one of chatml"),
        (["--tokenizer", "."], "tokenizer: ."),
        (["--engine", "localhost:1"], "localhost:1"),
        (["--message-matcher", "vague"], "vague"),
        (["--idle-timeout", "-1"], "session_idle_timeout: -1.0"),
        (["--settings", "no-such.yaml"], "no-such.yaml"),
    ],
)
def test_what_is_impossible_exits_2_and_names_it(words: list[str], named: str) -> None:
    result = CliRunner().invoke(app, ["session", "--engine", "http://127.0.0.1:1", "--port", "0", *words])
    assert result.exit_code == 2, result.output
    assert named in result.stderr
    assert result.stdout == ""


def test_a_field_of_the_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("max_node: 5\n", encoding="utf-8")
    result = CliRunner().invoke(app, ["session", "--engine", "http://x", "--settings", str(tmp_path / "s.yaml")])
    assert result.exit_code == 2
    assert "'max_node' is not one of session, " in result.stderr


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(app, ["session", "--engine", "http://127.0.0.1:1", "--port", port])
    assert result.exit_code == 2
    assert port in result.stderr
