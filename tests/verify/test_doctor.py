"""The doctor: what is there, what is missing, one rollout to see; on targets well and not well."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from miles_sim.cli import app

ADAPTER = """
from miles_sim.targets.reference import ReferenceTarget


class Target(ReferenceTarget):
    async def examine(self):
        return {"where": {"toy": "/toys"}, "packages": {"torch": "9.9", "ray": None}}

    async def play(self, job, agent):
        document = await super().play(job, agent)
        CHANGE
        return document
"""


def doctor(*words: str) -> Any:
    return CliRunner().invoke(app, ["doctor", *words])


@pytest.fixture
def adapter(tmp_path: Path) -> Any:
    """`adapter(change)`: words that name an adapter whose documents are changed by a statement."""

    def make(change: str = "pass") -> list[str]:
        (tmp_path / "toy_adapter.py").write_text(ADAPTER.replace("CHANGE", change))
        return ["--target", "toy_adapter:Target", "--python", sys.executable, "--checkout", str(tmp_path)]

    return make


def test_our_own_implementation_is_well() -> None:
    result = doctor("--target", "reference")
    assert result.exit_code == 0
    assert "can: session.v1, session.v2" in result.output
    assert result.output.splitlines()[-1] == "well: miles-sim verify can put reference under contract"


def test_what_was_found_where_and_tried_is_told(adapter: Any) -> None:
    result = doctor(*adapter())
    assert result.exit_code == 0, result.output
    assert "  toy from /toys\n" in result.output
    assert "torch 9.9" in result.output
    assert "tried: linear/v2: 1 sample, completed, " in result.output


def test_the_document_says_the_same(adapter: Any) -> None:
    found = json.loads(doctor(*adapter(), "--json").output)
    assert (found["schema"], found["problem"]) == ("miles-sim/diagnosis/1", "")
    assert found["packages"] == {"torch": "9.9", "ray": None}
    assert found["trial"]["status"] == ["completed"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("document = 3", "play: answered int, a mapping is due"),
        ("document['rollouts'] = []", "observation of linear/v2: 0 rollouts, 1 were asked"),
        ("document['rollouts'][0]['samples'][0]['tokens'] = 'abc'", "rollouts[0].samples[0].tokens"),
        ("raise KeyError('x')", "play: KeyError: 'x'"),
        ("document['rollouts'][0]['samples'] = []", "nothing of what the engine said is trained"),
        (
            "document['rollouts'][0]['error'] = {'type': 'OSError', 'message': 'no room'}",
            "linear/v2: generate raised OSError: no room",
        ),
    ],
)
def test_a_target_that_answers_nonsense_is_not_well(adapter: Any, change: str, problem: str) -> None:
    result = doctor(*adapter(change))
    assert result.exit_code == 2
    (line,) = (line for line in result.output.splitlines() if line.startswith("not well: "))
    assert problem in line


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--checkout", "/no/such/folder"], "checkout: '/no/such/folder' is no folder"),
        (["--python", "/no/such/python"], "/no/such/python: cannot be run: No such file or directory"),
        (["--python", "/bin/false"], "/bin/false: start: died\n  is /bin/false a Python 3.10 or later?"),
        (
            ["--python", sys.executable],
            f"cannot be loaded: ModuleNotFoundError: No module named 'miles'\n  {sys.executable} has no",
        ),
        (["--target", "milse"], "target: 'milse' is neither one of"),
    ],
)
def test_verify_uses_the_doctors_words(words: list[str], problem: str) -> None:
    target = [] if "--target" in words else ["--target", "miles"]
    for command, opening in (("doctor", "not well: "), ("verify", "miles-sim: ")):
        result = CliRunner().invoke(app, [command, *target, *words])
        assert result.exit_code == 2
        assert problem in result.output
        assert opening in result.output


def test_a_half_checked_out_tree_is_told_with_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "miles/utils").mkdir(parents=True)
    (tmp_path / "miles/utils/types.py").touch()
    found = json.loads(doctor("--checkout", str(tmp_path), "--json").output)
    assert "is not a whole miles: it lacks miles/utils/http_utils.py" in found["problem"]
    (tmp_path / "miles/miles").mkdir()
    (tmp_path / "miles/utils/types.py").unlink()
    assert f"holds one: name '{tmp_path}/miles'" in doctor("--checkout", str(tmp_path)).output
