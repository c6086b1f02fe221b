"""The search command: what it prints, writes and promotes, and how it ends."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from miles_sim.cli import app
from miles_sim.scenarios import library
from miles_sim.verify import search

NEVER = '''
from miles_sim.verify import rule


@rule("house/never", level="meaning", reason="To see one fail.", source="this test")
def never(case, see):
    """No case is ever right."""
    see.that(False, "it never is", expected="this", found="that")
'''


def _run(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def test_what_is_found_is_shown_written_promoted_and_seen_again_by_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("pack", "shelf"):
        (tmp_path / name).mkdir()
    (tmp_path / "pack" / "house.py").write_text(NEVER, encoding="utf-8")
    own = ("--contracts", "pack", "--contract", "house/*", "--examples", "2")
    result = _run("search", *own, "--promote", "odd-one", "--library", "shelf")
    assert result.exit_code == 1, result.output
    assert "house/never (must): No case is ever right." in result.output
    assert library.load_file("shelf/odd-one.yaml").name == "odd-one"
    (repro,) = (line.split() for line in result.output.splitlines() if line.startswith("  miles-sim verify"))
    again = _run(*repro[1:])
    assert again.exit_code == 1
    assert "it never is" in again.output
    assert _run("search", *own, "--promote", "odd-one", "--library", "shelf").exit_code == 2


def test_nothing_found_holds_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = _run("search", "--contract", "identity/*", "--examples", "2")
    assert (result.exit_code, list(tmp_path.iterdir())) == (0, [])
    assert result.output.splitlines()[-1] == "2 scenarios drawn, 2 played, found: nothing"


def test_what_was_found_is_written_though_the_search_is_stopped_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pack").mkdir()
    other = NEVER.replace("house/never", "house/other")
    (tmp_path / "pack" / "house.py").write_text(NEVER + other.replace("def never", "def other"), encoding="utf-8")
    file = tmp_path / "found" / "house-never.yaml"
    play = search._Player.play

    def stopped(self: Any, scenario: Any) -> Any:
        if file.exists():
            raise KeyboardInterrupt
        return play(self, scenario)

    monkeypatch.setattr(search._Player, "play", stopped)
    result = _run(
        "search", "--contracts", "pack", "--contract", "house/*", "--examples", "9", "--most", "2", "--out", "found"
    )
    assert result.exit_code == 130, result.output
    assert [each.name for each in file.parent.iterdir()] == ["house-never.yaml"]
