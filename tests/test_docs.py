"""What the pages under docs/ show works: their commands run, or at least have those options."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from miles_sim.cli import app

DOCS = Path(__file__).parent.parent / "docs"
ELSEWHERE = ("/path/to/", " serve ", " session ", " chaos ", " bench ", " --ray ", "gpu:", "/violations/", "small.yaml")
"""Parts of commands that need what a test has not: other programs, files of yours, a person who stops them."""


def _commands() -> list[Any]:
    return [
        pytest.param(command, id=f"{page.stem}-{number}")
        for page in sorted(DOCS.glob("*.md"))
        for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        for number, command in enumerate(re.findall(r"^\$ (miles-sim .*)$", block, re.MULTILINE))
    ]


@pytest.mark.parametrize("command", _commands())
def test_each_command_shown_holds_or_has_those_options(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)[1:]
    if not any(part in f"{command} " for part in ELSEWHERE):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        return
    depth = 2 if words[0] == "bench" else 1
    told = CliRunner().invoke(app, [*words[:depth], "--help"]).output
    for option in (word for word in words if word.startswith("--")):
        assert re.search(rf"{option}\b", told), f"{command}: {option}"
