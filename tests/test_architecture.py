"""Arrows run down only: who may import whom, read off the source."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "miles_sim"

GROUND = {
    "__init__",
    "asgi",
    "document",
    "families",
    "hf_tokenizer",
    "ledger",
    "messages",
    "plain_http",
    "reply",
    "resources",
    "rows",
    "tokenizer",
    "transport",
    "workers",
    "yaml_file",
}
HEAVY = ["faker", "numpy", "ray", "safetensors", "sglang", "starlette", "torch", "transformers", "uvicorn"]
MAY_IMPORT: dict[str, set[str]] = {
    "rollout": {"tokenizer"},
    "engine": GROUND,
    "agent": GROUND,
    "faults": GROUND | {"agent"},
    "scenarios": GROUND | {"agent", "engine", "faults"},
    "targets": GROUND | {"agent", "engine", "rollout", "scenarios"},
    "verify": GROUND | {"agent", "engine", "faults", "scenarios", "targets"},
    "campaign": GROUND | {"agent", "engine", "faults", "scenarios", "targets", "verify"},
    "report": GROUND | {"agent", "campaign", "engine", "faults", "scenarios", "targets", "verify"},
}
"""Folder to what it may import of this package, beside itself. Faces (cli, pytest_plugin, bench) may import all."""

CONTRACTS_MAY_IMPORT = GROUND | {"agent", "faults", "scenarios", "verify"}
"""And `targets.observation`, which is plain data."""


def imports(path: Path) -> set[str]:
    """Dotted names of this package that a file imports, at the top or inside a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "miles_sim" and "." in name}


def parts(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imports(path)} - {"__version__"}


@pytest.mark.parametrize("folder", sorted(MAY_IMPORT))
def test_a_folder_imports_only_what_stands_below_it(folder: str) -> None:
    wrong = {
        f"{path.relative_to(ROOT)} imports {part}"
        for path in (PACKAGE / folder).rglob("*.py")
        for part in parts(path) - MAY_IMPORT[folder] - {folder}
    }
    assert wrong == set()


def test_ground_floor_modules_import_no_folder() -> None:
    wrong = {
        f"{path.name} imports {part}" for path in PACKAGE.glob("*.py") if path.stem in GROUND for part in parts(path)
    }
    assert {line for line in wrong if line.split()[-1] not in GROUND} == set()


def test_contracts_see_scenario_ledger_and_observation_alone() -> None:
    wrong = set()
    for path in (ROOT / "contracts").glob("*.py"):
        if path.name.startswith("test_") or path.name == "conftest.py":
            continue
        for name in imports(path):
            part = name.split(".")[1]
            if part not in CONTRACTS_MAY_IMPORT and not name.startswith("miles_sim.targets.observation"):
                wrong.add(f"{path.name} imports {name}")
    assert wrong == set()


def test_the_package_and_its_pytest_plugin_load_nothing_heavy() -> None:
    code = f"import sys, miles_sim, miles_sim.pytest_plugin; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
