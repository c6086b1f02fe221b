"""What a command line asked for, made into scenarios, rules, targets and engine settings."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, get_args

from miles_sim.document import DocumentError, read
from miles_sim.engine.settings import EngineSettings
from miles_sim.resources import CONTRACTS
from miles_sim.scenarios import library
from miles_sim.scenarios.model import Scenario, SessionVersion
from miles_sim.targets.base import Target
from miles_sim.transport import LocalNetwork
from miles_sim.verify.pack import combine, load_pack, select
from miles_sim.verify.processes import Processes
from miles_sim.verify.rule import Rule
from miles_sim.verify.run import Progress, SelectionError, select_cases, verify
from miles_sim.verify.struck import needed
from miles_sim.yaml_file import YamlFile

MOST_PROCESSES = 4
"""More gain little: what they hand back is read by one."""
CASES_THAT_PAY = 50
"""A process takes as long to start as this many cases to play."""


Cases = list[tuple[Scenario, SessionVersion]]


class Impossible(ValueError):
    """Asked for what cannot be; the message says what can."""


@dataclass(frozen=True)
class TargetChoice:
    """Which implementation, and where it lives."""

    name: str = "reference"
    python: Path | None = None
    optimize: bool = False
    checkout: Path | None = None
    workers: int | None = None
    """Processes, side by side. None: for miles-sim's own implementation as many as pay, for others one."""

    def options(self, packs: Sequence[Path] | None = None) -> list[str]:
        """The command-line options that say the same; `packs`: folders of own contracts, beside it."""
        words = [word for folder in packs or () for word in ("--contracts", str(folder))]
        words += ["--target", self.name] if self.name != "reference" else []
        words += ["--python", str(self.python)] if self.python else []
        words += ["--optimize"] if self.optimize else []
        return words + (["--checkout", str(self.checkout)] if self.checkout else [])

    @property
    def here(self) -> bool:
        """miles-sim's own implementation, in this process."""
        return replace(self, workers=None) == TargetChoice()

    def player(
        self, rules: Sequence[Rule], packs: Sequence[Path] | None, cases: int
    ) -> AbstractContextManager[Processes | None]:
        """Processes that play in place of this one, where that is asked for or pays."""
        if not self.here:
            return nullcontext()
        workers = self.workers or min(_cores(), MOST_PROCESSES, cases // CASES_THAT_PAY)
        return Processes(workers, rules, packs or ()) if workers > 1 else nullcontext()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[Target, LocalNetwork | None]]:
        """The target and, where it lives in this process, the network to share with it; both closed at the end."""
        from miles_sim.targets.catalog import open_target
        from miles_sim.targets.pool import TargetPool

        if ":" in self.name and "" not in sys.path:
            sys.path.insert(0, "")  # an adapter may lie in the current folder
        network = LocalNetwork()
        side_by_side = 1 if self.here else self.workers or 1
        python = str(self.python) if self.python else sys.executable if side_by_side > 1 else None
        members = [
            open_target(
                self.name,
                python=python,
                optimize=self.optimize,
                checkout=str(self.checkout) if self.checkout else None,
                network=network,
            )
            for _ in range(side_by_side)
        ]
        target = TargetPool(members) if side_by_side > 1 else members[0]
        try:
            yield target, network if self.here else None
        finally:
            await target.close()
            await network.aclose()

    async def served(self, scenario: Scenario, sessions: Sequence[SessionVersion]) -> SessionVersion:
        """As the function of that name, on a target that is opened for it alone."""
        async with self.opened() as (target, _):
            return await served(target, scenario, sessions)


def _cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chosen_rules(folders: Sequence[Path] | None, patterns: Sequence[str] | None) -> tuple[Rule, ...]:
    """The built-in pack and `folders`, less what no pattern matches."""
    return select(combine([load_pack(CONTRACTS), *map(load_pack, folders or ())]), patterns or ())


def absolute(folders: Sequence[Path] | None) -> tuple[str, ...]:
    """Packs as any process finds them, wherever it was started."""
    return tuple(str(folder.absolute()) for folder in folders or ())


async def witnesses_of(rules: Sequence[Rule]) -> str:
    """The witness index of `rules` over the whole library on miles-sim's own implementation."""
    from miles_sim.verify.witnesses import witness_text

    async with TargetChoice().opened() as (target, network):
        run = await verify(chosen_cases(None), target, rules, network=network)
    return witness_text(run.report)


def chosen_cases(patterns: Sequence[str] | None, skipped: Sequence[str] | None = None) -> Cases:
    """The library's cases that match, and every case of each YAML file named; all without a pattern. Less those that
    `skipped` matches. `SelectionError` for a pattern that matches none, or two scenarios of one name; `Impossible` for
    one of `skipped` that matches none of the library and the files, or where nothing is left."""
    files = scenario_files(patterns)
    globs = [pattern for pattern in patterns or () if not _is_file(pattern)]
    own = [library.load_file(file) for file in files.values()]
    every = [library.load(name) for name in library.names()] if globs or skipped or not files else []
    cases = select_cases(own, ())
    if globs or not files:
        built_in = select_cases(every, globs)
        if both := [scenario.name for scenario, _ in built_in if scenario.name in files]:
            raise SelectionError(f"scenario: {files[both[0]]} and a built-in one are both named {both[0]!r}")
        cases += built_in
    if skipped:
        left_out = _left_out([*own, *every], skipped)
        cases = [(scenario, session) for scenario, session in cases if (scenario.name, session) not in left_out]
    if not cases:
        raise Impossible("skip: nothing is left to play")
    return cases


def scenario_files(patterns: Sequence[str] | None) -> dict[str, str]:
    """The YAML files among `patterns`, by the name of the scenario that each holds; `SelectionError` where two share
    one."""
    files: dict[str, str] = {}
    for file in filter(_is_file, patterns or ()):
        name = library.load_file(file).name
        if (other := files.setdefault(name, file)) != file:
            raise SelectionError(f"scenario: {other} and {file} are both named {name!r}")
    return files


def _left_out(scenarios: Sequence[Scenario], patterns: Sequence[str]) -> set[tuple[str, SessionVersion]]:
    try:
        return {(scenario.name, session) for scenario, session in select_cases(scenarios, patterns)}
    except SelectionError as error:
        raise Impossible(f"skip: {str(error).removeprefix('scenario: ')}") from None


def chosen_sessions(name: str, version: str | None = None) -> tuple[Scenario, tuple[SessionVersion, ...]]:
    """One scenario by `scenario`, `scenario/session` or YAML file, and the sessions that it may be played under: the
    one asked for, or else all of its own, the latest first."""
    start, slash, own = name.partition("/")
    if slash and not _is_file(name) and (own in get_args(SessionVersion) or start in library.names()):
        if version not in (None, own):
            raise Impossible(f"session: {version!r} is asked for, and {name}")
        name, version = start, own
    scenario = library.resolve(name)
    sessions = tuple(sorted((each for each in scenario.sessions if version in (None, each)), reverse=True))
    if not sessions:
        raise Impossible(f"session: {version!r} cannot serve {scenario.name}; it has {', '.join(scenario.sessions)}")
    return scenario, sessions


async def served(target: Target, scenario: Scenario, sessions: Sequence[SessionVersion]) -> SessionVersion:
    """The first of `sessions` under which the target can play it; `Impossible` gives the target's reason why none."""
    info = await target.describe()
    reasons = []
    for session in sessions:
        lacking = [need for need in needed(scenario, session) if need not in info["capabilities"]]
        if not lacking:
            return session
        reasons.append(f"{lacking[0]}: {info['absent'].get(lacking[0], 'the target does not claim it')}")
    told = "; ".join(dict.fromkeys(reasons))
    raise Impossible(f"target: {info['name']} cannot play {scenario.name}/{sessions[0]}: it needs {told}")


SERVED: dict[str, Any] = {"ledger": {"keep": 1000, "questions": 100_000}, "cache_tokens": 1 << 20}
"""Bounds of an engine that serves for long, so that its memory stays flat; a settings file may say otherwise."""


def chosen_engine(
    file: Path | None,
    given: dict[str, Any],
    speculative: dict[str, Any],
    latency: dict[str, Any] | None = None,
    ledger: dict[str, Any] | None = None,
) -> EngineSettings:
    """Settings of a YAML file over `SERVED`, with `given` and the nested ones (where not None) in their place."""
    spool = (ledger or {}).get("spool")
    chosen_files(spool=Path(spool) if spool is not None else None)
    name = str(file) if file else "serve"
    settings = SERVED | (_mapping(file) if file else {})
    settings |= _given(given)
    for field, options in (("speculative", speculative), ("latency", latency), ("ledger", ledger)):
        drawn = _given(options or {})
        if drawn:
            base = settings.get(field)
            settings[field] = {**(base if isinstance(base, dict) else {}), **drawn}
    return read(EngineSettings, settings, name=name)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def probabilities(text: str | None) -> list[float] | None:
    """`0.8,0.6` as numbers."""
    try:
        return [float(part) for part in text.split(",")] if text is not None else None
    except ValueError:
        raise Impossible(f"acceptance: {text!r} is not numbers with commas between, as 0.8,0.6") from None


def chosen_files(**asked: Path | None) -> dict[str, Path]:
    """The files asked for, by kind. Raises `Impossible` for one that cannot be written, or is asked for twice: better
    before a long run than after it."""
    files = {kind: file for kind, file in asked.items() if file is not None}
    kinds: dict[Path, str] = {}
    for kind, file in files.items():
        if (other := kinds.setdefault(file.absolute(), kind)) != kind:
            raise Impossible(f"{kind}: {file} is written by --{other} too")
    for kind, file in files.items():
        if not file.parent.is_dir():
            raise Impossible(f"{kind}: {file}: there is no folder {file.parent}")
        if file.is_dir():
            raise Impossible(f"{kind}: {file} is a folder")
        if str(file) != "-":
            _tried(kind, file)
    return files


def _tried(kind: str, file: Path) -> None:
    """Raises `Impossible` for a file that cannot be opened for writing; nothing is changed by that."""
    there = file.exists()
    if there and not file.is_file():
        return  # who reads a pipe would take this for all that comes
    try:
        file.open("ab").close()
    except OSError as error:
        raise Impossible(f"{kind}: {file}: {error.strerror}") from None
    if not there:
        file.resolve().unlink()  # not the link that leads there


def chosen_folder(**asked: Path) -> Path:
    """The one folder asked for, by kind, to be made where it is due. Raises `Impossible` where it cannot be; better
    before a long run than after it."""
    ((kind, folder),) = asked.items()
    if folder.exists() and not folder.is_dir():
        raise Impossible(f"{kind}: {folder} is no folder")
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise Impossible(f"{kind}: {folder} cannot be written to")
    except OSError as error:
        raise Impossible(f"{kind}: {folder}: {error.strerror}") from None
    finally:
        for each in missing:
            with suppress(OSError):
                each.rmdir()
    return folder


def json_files(folder: Path) -> list[Path]:
    """The folder's `*.json`, by name. Raises `Impossible` where there is none."""
    found = sorted(folder.glob("*.json"))
    if not found:
        raise Impossible(f"{folder}: {'no *.json in this folder' if folder.is_dir() else 'there is no such folder'}")
    return found


def chosen_date(text: str) -> str:
    """A day as `2026-08-21`; `Impossible` for what is none."""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise Impossible(f"date: {text!r} is no day as 2026-08-21: {error}") from None


@contextmanager
def shown_progress(quiet: bool) -> Iterator[Progress | None]:
    """A line on standard error that follows the run and leaves nothing behind; none where that is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda case, done, total: status.update(f"{done}/{total} {case}")


@contextmanager
def shown_search() -> Iterator[Callable[[int, int], None] | None]:
    """The same for a search: how many scenarios it has played."""
    with shown_progress(quiet=False) as progress:
        yield (
            None
            if progress is None
            else lambda played, drawn: progress("scenarios; shrinking plays more", played, drawn)
        )


def _is_file(pattern: str) -> bool:
    return pattern.endswith((".yaml", ".yml"))


def _mapping(file: Path) -> dict[str, Any]:
    data = YamlFile(file).data
    if not isinstance(data, dict):
        raise DocumentError(f"{file}: expected a mapping, found {type(data).__name__}")
    return data
