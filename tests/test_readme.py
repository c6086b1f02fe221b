"""What README.md shows works: its tests pass, its scenario plays, its contract judges, its commands run."""

import ast
import concurrent.futures.process  # noqa: F401 - as numpy below
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

import miles_sim.targets.reference
import miles_sim.verify.play  # noqa: F401 - numpy loads once a process, and pytester forgets what a run imported
from miles_sim.cli import app
from miles_sim.verify.pack import load_pack

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PLACEHOLDER = "/path/to/"
SERVING = (" serve ", " session ", " chaos ")
INI = """
[pytest]
# No asyncio_mode: a reader has none. Some versions of pytest-asyncio warn of the scope where it is not set.
asyncio_default_fixture_loop_scope = function
# An inner run shares its modules with the outer one, which has imported the contract pack.
filterwarnings = ignore::pytest.PytestAssertRewriteWarning
"""


@dataclass(frozen=True)
class Block:
    language: str
    text: str


BLOCKS = [Block(*found) for found in re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)]
PYTHON = [block.text for block in BLOCKS if block.language == "python"]
COMMANDS = [
    line.removeprefix("$ ")
    for block in BLOCKS
    if block.language == "console"
    for line in block.text.splitlines()
    if line.startswith("$ miles-sim ")
]
VENV = "venv/bin/python"
SHOWN = [
    pytest.param(*found, marks=pytest.mark.miles if VENV in found[0] else (), id=found[0].partition(" --scenario ")[0])
    for found in re.findall(
        r"^<!-- output of `(miles-sim [^`]*)` -->\n```text\n(.*?)^```$", README, re.MULTILINE | re.DOTALL
    )
]


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with README's scenario and contract, under the names that its commands use."""
    (scenario,) = (block.text for block in BLOCKS if block.language == "yaml")
    (contract,) = (text for text in PYTHON if "@rule(" in text)
    (tmp_path / "look-aside.yaml").write_text(scenario, encoding="utf-8")
    (tmp_path / "my_contracts").mkdir()
    (tmp_path / "my_contracts" / "house.py").write_text(contract, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


TESTS = [text for text in PYTHON if "def test_" in text or ".TestCase" in text]


@pytest.mark.parametrize("text", TESTS, ids=["picker", "sessions", "engine"])
def test_each_test_shown_passes_where_pytest_is_not_set_up_for_it(text: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_shown=text)
    pytester.makeini(INI)
    outcomes = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider").parseoutcomes()
    assert outcomes.keys() <= {"passed", "skipped"}
    assert outcomes["passed"] >= 1


def test_the_picker_shown_is_the_example_that_runs() -> None:
    (shown,) = (text for text in PYTHON if "sample_picker=" in text)
    example = (ROOT / "tests/examples/test_own_picker.py").read_text(encoding="utf-8")
    without_docstring = ast.parse(example).body[1:]
    assert ast.dump(ast.Module(without_docstring, [])) == ast.dump(ast.Module(ast.parse(shown).body, []))


@pytest.mark.parametrize("text", PYTHON, ids=range(len(PYTHON)))
def test_each_python_block_runs(text: str) -> None:
    exec(compile(text, "README.md", "exec"), {"__name__": "readme"})


@pytest.mark.parametrize("command", [c for c in COMMANDS if not any(part in c for part in (PLACEHOLDER, *SERVING))])
def test_each_command_shown_holds(command: str, workshop: Path) -> None:
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
    assert result.output


@pytest.mark.parametrize(("command", "shown"), SHOWN)
def test_each_line_of_output_shown_is_printed_in_that_order(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # as wide as where nobody looks
    python = os.environ.get("MILES_SIM_MILES_PYTHON", "")
    words = [python if word == VENV else word for word in shlex.split(command)[1:]]
    printed = iter(_alike(CliRunner().invoke(app, words).output, python))
    missing = [line for line in _alike(shown) if line != "…" and line not in printed]
    assert not missing


def _alike(text: str, python: str = VENV) -> list[str]:
    """The lines, whatever Python there is, and wherever."""
    text = re.sub(r"Python 3[.\d]+", "Python 3", text.replace(python or VENV, VENV))
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.parametrize("command", [c for c in COMMANDS if any(part in c for part in (PLACEHOLDER, *SERVING))])
def test_each_option_shown_exists(command: str) -> None:
    words = shlex.split(command)[1:]
    told = CliRunner().invoke(app, [words[0], "--help"]).output
    for option in (word for word in words if word.startswith("--")):
        assert re.search(rf"{option}\b", told), f"{command}: {option}"


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w-]+/[\w./-]+|\.ci/\w+)`", README))))
def test_each_file_or_contract_named_exists(name: str) -> None:
    assert (ROOT / name).exists() or name in {rule.id for rule in load_pack()}
