"""Which tests and which cases run which lines of the package, and how long each takes."""

import hashlib
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from . import pack
from .mutants import PACKAGE, ROOT, Mutant

CACHE = ROOT / ".pytest_cache" / "mutation"


@dataclass(frozen=True)
class Reach:
    """What the untouched code showed."""

    seconds: dict[str, float]
    """Test id or `case:scenario/session` to its duration, under trace."""
    lines: dict[str, dict[str, list[int]]]
    """File, relative to the root, to line to numbers of those that run it, in the order of `seconds`."""
    broken: list[str]
    """What fails on the untouched code, and so judges nothing."""

    def of(self, mutant: Mutant) -> tuple[list[str], list[str]]:
        """Tests and cases that run the mutant's statement, quickest first."""
        everyone = list(self.seconds)
        by_line = self.lines.get(str(mutant.path.relative_to(ROOT)), {})
        numbers = {n for line in range(mutant.first, mutant.last + 1) for n in by_line.get(str(line), ())}
        return self._sorted([everyone[n] for n in numbers])

    def of_module(self, mutant: Mutant) -> tuple[list[str], list[str]]:
        """Tests and cases that run anything of the mutant's module; all, where it has nothing to run."""
        everyone = list(self.seconds)
        by_line = self.lines.get(str(mutant.path.relative_to(ROOT)), {})
        numbers = {n for found in by_line.values() for n in found}
        return self._sorted([everyone[n] for n in numbers] or everyone)

    def _sorted(self, names: list[str]) -> tuple[list[str], list[str]]:
        sound = set(names) - set(self.broken)
        names = sorted(sound, key=lambda name: (self.seconds[name], name))
        cases = [name.removeprefix("case:") for name in names if name.startswith("case:")]
        return [name for name in names if not name.startswith("case:")], cases


class Tracer:
    """A pytest plugin: traces each test, then plays each case."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._seconds: dict[str, float] = {}
        self._lines: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        self.broken: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        with self._traced(item.nodeid):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.broken.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        for case in pack.names():
            with self._traced(f"case:{case}"):
                broken = pack.first_broken([case])
            if broken:
                self.broken.append(f"case:{case}")
        reach = {"seconds": self._seconds, "lines": self._lines, "broken": self.broken}
        self._out.write_text(json.dumps(reach))

    @contextmanager
    def _traced(self, name: str) -> Iterator[None]:
        seen: set[tuple[str, int]] = set()
        prefix = str(PACKAGE) + "/"

        def local(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "line":
                seen.add((frame.f_code.co_filename, frame.f_lineno))
            return local

        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            return local if frame.f_code.co_filename.startswith(prefix) else None

        begun = time.perf_counter()
        sys.settrace(trace)
        threading.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)
        number = len(self._seconds)
        self._seconds[name] = round(time.perf_counter() - begun, 4)
        for file, line in seen:
            self._lines[str(Path(file).relative_to(ROOT))][str(line)].append(number)


def kept() -> Path:
    """Where the reach of this very state of the code is kept."""
    state = hashlib.blake2b(digest_size=8)
    folders = (ROOT / "miles_sim", ROOT / "tests" / "rollout", ROOT / "contracts", ROOT / "fixtures" / "scenarios")
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".yaml")):
        state.update(path.read_bytes())
    return CACHE / f"{state.hexdigest()}.json"
