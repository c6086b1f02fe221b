"""Judging: each mutant in a fork of a process that has imported everything, first by the laws, then by the pack."""

import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, zip_longest
from pathlib import Path

import pytest

from . import pack, plant
from .mutants import PACKAGE, ROOT, Mutant
from .reach import Reach, Tracer, kept

TESTS = ROOT / "tests" / "rollout"
EXAMPLES = 25
"""Of each property that does not say how many it needs."""
PATIENCE = 4.0
"""Seconds of the processor beyond ten times what a test needs on the untouched code."""
LONGEST = 120.0
"""Seconds of the processor for all cases, or for what comes before the first test."""
IDLE = 5
"""So often, two seconds apart, a process is found asleep before it is taken for one that waits for ever."""
MEMORY = 6 << 30
BEFOREHAND = "faker httpx hypothesis jinja2 jsonschema numpy orjson pydantic pytest_asyncio respx rich safetensors "
BEFOREHAND += "starlette.testclient syrupy typer uvicorn yaml partial_json_parser openai"
QUIET = [
    "-qq",
    "-p",
    "no:cacheprovider",
    "--tb=no",
    "--no-header",
    "--no-summary",
    "-s",
    "--assert=plain",
    f"--rootdir={ROOT}",
]


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant."""

    verdict: str
    """`law`, `rule`, `snapshot`, `import`, `hang`, `crash`: what killed it; `survived`, `unreached`;
    `error`: the judge itself failed."""
    by: str = ""


class Laws:
    """Settings of the properties: same examples each time, none shrunk."""

    def pytest_collection(self) -> None:
        from hypothesis import Phase, settings

        own = settings.get_profile("miles-sim")
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile(
            "mutation", own, derandomize=True, database=None, max_examples=EXAMPLES, phases=phases
        )
        settings.load_profile("mutation")


@dataclass(frozen=True)
class Judge:
    """`laws`, `rules_alone`: what may kill."""

    reach: Reach
    laws: bool = True
    rules_alone: bool = False
    quick: float | None = None
    """Seconds of tests for one mutant, and five cases a second beside them; None: all that reach it."""

    def in_place(self, mutants: Sequence[Mutant], told: Callable[[Mutant, Verdict], None]) -> None:
        """Judge mutants of functions; all of this process's modules are imported once."""
        loop = _Loop(self, mutants, told)
        pytest.main([*QUIET, str(TESTS)], plugins=[Laws(), loop])

    def on_import(self, mutants: Sequence[Mutant], told: Callable[[Mutant, Verdict], None]) -> None:
        """Judge mutants of what runs at import; nothing of the package may be imported in this process."""
        for module in BEFOREHAND.split():
            try:
                importlib.import_module(module)
            except ImportError:
                continue
        for mutant in mutants:
            told(mutant, forked(lambda mutant=mutant: self._imported(mutant)))  # type: ignore[misc]

    def _imported(self, mutant: Mutant) -> Verdict:
        sys.meta_path.insert(0, plant.Import(mutant))
        tests, cases = self.reach.of_module(mutant)
        affordable, mirror = self._affordable(mutant, tests), mirrors(mutant)
        own = [test for test in affordable if test.split("::")[0] == mirror]
        rest = [test for test in affordable if test.split("::")[0] != mirror]
        for judged in (lambda: self._fresh(own), lambda: self.by_pack(cases), lambda: self._fresh(rest)):
            found = judged()
            if found is not None:
                return found
        return Verdict("survived")

    def _fresh(self, tests: list[str]) -> Verdict | None:
        if not self.laws or not tests:
            return None
        order = _Order(self, tests)
        code = pytest.main([*QUIET, "-x", *sorted({test.split("::")[0] for test in tests})], plugins=[Laws(), order])
        if order.failed:
            return Verdict("law", order.failed)
        return None if code == 0 else Verdict("import", f"pytest ends with {code}")

    def swapped(self, mutant: Mutant, items: dict[str, pytest.Item]) -> Verdict:
        """In the fork: plant it and see what fails first."""
        tests, cases = self.reach.of(mutant)
        if not tests and not cases:
            return Verdict("unreached")
        try:
            plant.swap(mutant)
        except Exception as error:
            return Verdict("import", f"{type(error).__name__}: {error}")
        chosen = [items[test] for test in self._affordable(mutant, tests) if test in items] if self.laws else []
        for item, following in zip_longest(chosen, chosen[1:]):
            self.patience(item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if item.session.testsfailed:
                return Verdict("law", item.nodeid)
        return self.by_pack(cases) or Verdict("survived")

    def _affordable(self, mutant: Mutant, tests: Sequence[str]) -> list[str]:
        """Those that mirror the mutant's module, then the others as far as there is time."""
        mirror = mirrors(mutant)
        own = [test for test in tests if test.split("::")[0] == mirror]
        others = [test for test in tests if test.split("::")[0] != mirror]
        ends = accumulate(self.reach.seconds[test] for test in others)
        return own + [test for test, end in zip(others, ends, strict=True) if self.quick is None or end <= self.quick]

    def by_pack(self, cases: Iterable[str]) -> Verdict | None:
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        cases = list(cases)
        step = 1 if self.quick is None else max(int(len(cases) / 5 / self.quick), 1)
        broken = pack.first_broken(cases[::step], by_rule_alone=self.rules_alone)
        return None if broken is None else Verdict(broken.verdict, broken.by)

    def patience(self, test: str) -> None:
        """Let the process be ended if the test takes much longer than it should, whatever else the machine does."""
        signal.setitimer(signal.ITIMER_PROF, PATIENCE + 10 * self.reach.seconds[test])


class _Loop:
    """A pytest plugin that judges mutants in place of running the tests once."""

    def __init__(self, judge: Judge, mutants: Sequence[Mutant], told: Callable[[Mutant, Verdict], None]) -> None:
        self._judge, self._mutants, self._told = judge, mutants, told

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        from miles_sim.report import case  # noqa: F401 - for all forks
        from miles_sim.targets import reference  # noqa: F401
        from miles_sim.verify import judge, play  # noqa: F401

        pack.scenarios(), pack.rules()
        gc.collect()
        gc.freeze()
        for mutant in self._mutants:
            self._told(mutant, forked(lambda mutant=mutant: self._judge.swapped(mutant, items)))  # type: ignore[misc]
        return True


class _Order:
    """A pytest plugin that runs chosen tests in a given order, and notes the first that fails."""

    def __init__(self, judge: Judge, tests: list[str]) -> None:
        self._judge = judge
        self._place = {test: n for n, test in enumerate(tests)}
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self._place), key=lambda i: self._place[i.nodeid])

    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        self._judge.patience(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def forked(judge: Callable[[], Verdict]) -> Verdict:
    """What `judge` gives in a child process; `hang` where its work, or its sleep, had no end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _alone(judge, writing)
    os.close(writing)
    told = _read(reading, child)
    _, status = os.waitpid(child, 0)
    if told:
        return Verdict(**json.loads(told))
    signalled = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if signalled in (signal.SIGPROF, signal.SIGKILL):
        return Verdict("hang", signal.Signals(signalled).name)
    return Verdict("crash", f"signal {signalled}" if signalled else f"exit code {os.WEXITSTATUS(status)}")


def _alone(judge: Callable[[], Verdict], writing: int) -> None:
    code = 1
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        try:
            verdict = judge()
        except Exception as error:
            verdict = Verdict("error", f"{type(error).__name__}: {error}")
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(writing, json.dumps(asdict(verdict)).encode())
        code = 0
    finally:
        os._exit(code)


def _read(reading: int, child: int) -> bytes:
    """All that the child writes; it is killed where it sleeps and nothing will wake it."""
    parts: list[bytes] = []
    asleep, before = 0, ""
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while True:
            ready, _, _ = select.select([pipe], [], [], 2.0)
            if ready:
                part = pipe.read(65536)
                if not part:
                    return b"".join(parts)
                parts.append(part)
                continue
            state, used = _process(child)
            asleep, before = (asleep + 1 if state == "S" and used == before else 0), used
            if asleep == IDLE:
                os.kill(child, signal.SIGKILL)
                return b""


def _process(id: int) -> tuple[str, str]:
    """State of a process, `S` if it sleeps, and the processor time that it has used, as Linux tells them."""
    fields = Path(f"/proc/{id}/stat").read_text().rpartition(")")[2].split()
    return fields[0], " ".join(fields[11:15])


def mirrors(mutant: Mutant) -> str:
    """The test file that mirrors the mutant's module."""
    path = mutant.path.relative_to(PACKAGE)
    return str((TESTS / path.parent / f"test_{path.name}").relative_to(ROOT))


def measured() -> Reach:
    """The reach of the untouched code, measured in a child where it is not known yet."""
    path = kept()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        told = forked(lambda: _measure(path))
        if not path.exists():
            raise SystemExit(f"measuring the untouched code ended with: {told.verdict} {told.by}")
    reach = Reach(**json.loads(path.read_text(encoding="utf-8")))
    if reach.broken:
        print(f"broken on the untouched code, and left out: {', '.join(reach.broken)}", file=sys.stderr)
    return reach


def _measure(out: Path) -> Verdict:
    signal.setitimer(signal.ITIMER_PROF, 0)
    pytest.main([*QUIET, str(TESTS)], plugins=[Laws(), Tracer(out)])
    return Verdict("survived")


def sources() -> Iterator[Path]:
    """The modules of the package."""
    return (path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__init__.py")
