"""What the pages under docs/ show works: their commands run, or at least have those options."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from miles_sim.cli import app
from miles_sim.verify.pack import load_pack

DOCS = Path(__file__).parent.parent / "docs"
ELSEWHERE = ("/path/to/", " serve ", " session ", " chaos ", " bench ", " --ray ", "gpu:", "/violations/", "small.yaml")
"""Parts of commands that need what a test has not: other programs, files of yours, a person who stops them."""


PAGES = {
    page.stem: re.findall(r"^\$ (miles-sim .*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    for page in sorted(DOCS.glob("*.md"))
}


@pytest.mark.parametrize("page", [page for page, commands in PAGES.items() if commands])
def test_each_command_shown_holds_or_has_those_options(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in PAGES[page]:  # in one folder: some go on with what others wrote
        words = shlex.split(command)[1:]
        if any(part in f"{command} " for part in ELSEWHERE):
            _has_options(command, words)
        else:
            result = CliRunner().invoke(app, words)
            assert result.exit_code == 0, f"{command}\n{result.output}"


def test_each_section_that_a_contract_cites_is_there() -> None:
    page = (DOCS / "design.md").read_text(encoding="utf-8")
    cited = {each for rule in load_pack() for each in re.findall(r"\b(?:design |, )(\d(?:\.\d)?)\b", rule.source)}
    assert {"6.1", "6.8", "8"} <= cited
    for section, _, item in (each.partition(".") for each in sorted(cited)):
        text = page.partition(f"\n## {section}. ")[2].partition("\n## ")[0]
        assert text, section
        assert not item or f"\n{item}. " in text, f"{section}.{item}"


def _has_options(command: str, words: list[str]) -> None:
    told = CliRunner().invoke(app, [*words[: 2 if words[0] == "bench" else 1], "--help"]).output
    for option in (word for word in words if word.startswith("--")):
        assert re.search(rf"{option}\b", told), f"{command}: {option}"
