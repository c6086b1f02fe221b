"""The named scenarios: one file each in `fixtures/scenarios/`, and scenario files of anyone's."""

from difflib import get_close_matches
from pathlib import Path

from miles_sim.document import DocumentError
from miles_sim.resources import FIXTURES
from miles_sim.scenarios.model import Scenario
from miles_sim.yaml_file import YamlFile

FOLDER = FIXTURES / "scenarios"


class UnknownScenarioError(DocumentError):
    """No scenario of this name."""


def names() -> tuple[str, ...]:
    """Names of the built-in scenarios, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def load(name: str) -> Scenario:
    """The built-in scenario of this name; raises `UnknownScenarioError`."""
    file = FOLDER / f"{name}.yaml"
    if file.parent != FOLDER or not file.is_file():
        known = names()
        near = get_close_matches(name, known, n=4, cutoff=0.5)
        hint = f"near: {', '.join(near)}" if near else f"`miles-sim scenarios` lists the {len(known)} that are"
        raise UnknownScenarioError(f"scenario: {name!r} is not built in; {hint}")
    return load_file(file)


def load_file(path: str | Path) -> Scenario:
    """The scenario that a YAML file holds; raises `DocumentError` with file, line and place of each fault."""
    return YamlFile(path).read(Scenario)


def resolve(name_or_file: str) -> Scenario:
    """A scenario by name or by file: a file is what ends in `.yaml` or `.yml` or holds a slash."""
    if name_or_file.endswith((".yaml", ".yml")) or "/" in name_or_file:
        return load_file(name_or_file)
    return load(name_or_file)
