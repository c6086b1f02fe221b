"""What a search found, as scenario files: with the line that shows it again, or promoted into a library."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from miles_sim.document import DocumentError
from miles_sim.scenarios.library import FOLDER
from miles_sim.scenarios.model import Scenario
from miles_sim.scenarios.written import scenario_yaml
from miles_sim.verify.search import Found


@dataclass(frozen=True)
class File:
    """A scenario file, and the shell line that shows the violation again."""

    path: Path
    repro: str


def written(found: Found, folder: Path, *, command: Sequence[str] = ("miles-sim", "verify")) -> File:
    """Write the scenario to `folder` under its contract's name; a second one of that name gets a number.

    The same scenario again takes the place of its own file. `command` opens the reproduction line.
    """
    folder.mkdir(parents=True, exist_ok=True)
    base = slug(found.contract)
    number = 1
    while True:
        name = base if number == 1 else f"{base}-{number}"
        path = folder / f"{name}.yaml"
        repro = shlex.join([*command, "--scenario", str(path), "--contract", found.contract])
        text = scenario_yaml(_named(found, name), comment=f"Violates {found.contract}.\n{repro}")
        if not path.exists() or path.read_text(encoding="utf-8") == text:
            path.write_text(text, encoding="utf-8")
            return File(path, repro)
        number += 1


def free(name: str, folder: Path | None = None) -> Path:
    """The file that a promoted scenario of this name gets in a library (default: the built-in one).

    DocumentError where the name is no scenario's, is taken, or the library is no folder: better before a search.
    """
    library = folder or FOLDER
    if not library.is_dir():
        raise DocumentError(f"library: {library} is not a folder")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", name):
        raise DocumentError(f"promote: {name!r} is no scenario's name: small letters, digits and hyphens, 64 at most")
    path = library / f"{name}.yaml"
    if path.exists():
        raise DocumentError(f"promote: {path} is there already")
    return path


def promoted(found: Found, path: Path) -> Path:
    """Write the scenario to a library under the name of `path`."""
    path.write_text(scenario_yaml(_named(found, path.stem)), encoding="utf-8")
    return path


def slug(contract: str) -> str:
    """A contract's id as a scenario's name."""
    return re.sub(r"[^a-z0-9]+", "-", contract.lower()).strip("-")[:60]


def _named(found: Found, name: str) -> Scenario:
    message = found.results[0].message if found.results else found.contract
    title = " ".join(f"Found by search: {message}".split())[:120]
    return found.scenario.model_copy(update={"name": name, "title": title})
