"""Bisecting: the first commit of a target's history at which a contract is violated.

`git bisect` does the walking, in a repository of its own that borrows the user's objects: nothing is written into
the user's checkout or its git directory, whatever ends the run.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Literal

from pydantic import Field

from miles_sim.document import Document
from miles_sim.verify.report import Report, Verdict

SCHEMA: Literal["miles-sim/bisection/1"] = "miles-sim/bisection/1"


class State(Enum):
    """What a revision is, in git's words."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"
    """It cannot be told: it does not import, or nothing of what was asked could be looked at."""


class Step(Document):
    """One revision that was tried."""

    revision: str
    subject: str
    state: State
    why: str
    """The first violation; how much held; or why it was skipped."""


class Bisection(Document):
    """What became of a bisection."""

    schema_: Literal["miles-sim/bisection/1"] = Field(default=SCHEMA, alias="schema")
    good: str
    bad: str
    first_bad: str | None
    """Hash of the commit; None: one of `candidates`, which were skipped, cannot be told which."""
    subject: str = ""
    candidates: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()


class BisectError(ValueError):
    """A history that cannot be bisected; the message says why."""


Try = Callable[[Path], Awaitable[tuple[State, str]]]
"""Judges the source tree in a folder: its state, and why."""
Told = Callable[[Step], None]


async def bisect(checkout: Path, good: str, bad: str, attempt: Try, told: Told = lambda step: None) -> Bisection:
    """The first bad commit between `good` and `bad`, by as few calls of `attempt` as git needs.

    Both ends are tried first: raises `BisectError` where `good` is violated or `bad` holds, where either cannot be
    told, or where git knows no such revision. `told` is called after each try.
    """
    ends = {"good": _revision(checkout, good, "good"), "bad": _revision(checkout, bad, "bad")}
    steps: list[Step] = []
    with _borrowed(checkout) as tree:

        async def step() -> State:
            state, why = await attempt(tree)
            revision, _, subject = _git(tree, "log", "-1", "--format=%H %s").partition(" ")
            steps.append(Step(revision=revision, subject=subject, state=state, why=why))
            told(steps[-1])
            return state

        for name, revision in ends.items():
            _git(tree, "checkout", "--quiet", "--detach", "--force", revision)
            state = await step()
            if state.value != name:
                raise BisectError(f"{name}: {revision[:12]} is {_WORDS[state]}: {steps[-1].why}")
        said = _git(tree, "bisect", "start", ends["bad"], ends["good"])
        while not _over(said):
            state = await step()
            said = _git(tree, "bisect", state.value)
        return _found(tree, ends, said, steps)


_WORDS = {State.GOOD: "not violated", State.BAD: "violated already", State.SKIP: "not to be told"}


def state_of(report: Report) -> tuple[State, str]:
    """What a report says of its revision: a violation is bad, a pass without any is good, else it cannot be told."""
    broken = [result for result in report.results if result.verdict is Verdict.VIOLATION]
    if broken:
        return State.BAD, f"{broken[0].contract} on {broken[0].scenario}: {broken[0].message}"
    if report.summary.passed:
        return State.GOOD, f"{report.summary.passed} passed"
    return State.SKIP, next((result.message for result in report.results), "nothing was judged")


# git shows subjects too, which may hold these words, but never at the start of a line
_FIRST_BAD = re.compile(r"^[0-9a-f]{40,64} is the first bad commit", re.MULTILINE)
_UNDECIDED = re.compile(r"^There are only 'skip'ped commits left", re.MULTILINE)


def _over(said: str) -> bool:
    return bool(_FIRST_BAD.search(said) or _UNDECIDED.search(said))


def _found(tree: Path, ends: dict[str, str], said: str, steps: list[Step]) -> Bisection:
    result = Bisection(good=ends["good"], bad=ends["bad"], first_bad=None, steps=tuple(steps))
    if _UNDECIDED.search(said):
        lines = (line.strip() for line in said.splitlines())
        return result.model_copy(update={"candidates": tuple(line for line in lines if _is_hash(line))})
    first = _git(tree, "rev-parse", "refs/bisect/bad")
    return result.model_copy(update={"first_bad": first, "subject": _git(tree, "log", "-1", "--format=%s", first)})


def _is_hash(line: str) -> bool:
    return len(line) in (40, 64) and set(line) <= set("0123456789abcdef")


def _revision(checkout: Path, name: str, which: str) -> str:
    try:
        return _git(checkout, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    except BisectError as error:
        if "not a git repository" in str(error):
            raise BisectError(f"checkout: {str(checkout)!r} is no git repository") from None
        raise BisectError(f"{which}: {name!r} is no commit of {checkout}") from None


@contextmanager
def _borrowed(checkout: Path) -> Iterator[Path]:
    """An empty work tree whose repository reads the objects of `checkout`; gone at the end."""
    objects = (checkout / _git(checkout, "rev-parse", "--git-path", "objects")).resolve()
    shallow = (checkout / _git(checkout, "rev-parse", "--git-path", "shallow")).resolve()
    with tempfile.TemporaryDirectory(prefix="miles-sim-bisect-") as folder:
        tree = Path(folder) / checkout.resolve().name
        tree.mkdir()
        _git(tree, "init", "--quiet")
        (tree / ".git/objects/info/alternates").write_text(f"{objects}\n", encoding="utf-8")
        if shallow.is_file():
            (tree / ".git/shallow").write_bytes(shallow.read_bytes())
        yield tree


def _git(folder: Path, *words: str) -> str:
    """What git prints; raises `BisectError` where it fails, but for a bisection that ends undecided."""
    own = {"LC_ALL": "C", "GIT_LFS_SKIP_SMUDGE": "1", "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
    outside = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-c", "advice.detachedHead=false", "-C", str(folder), *words],
            env={**outside, **own},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise BisectError(f"git cannot be run: {error.strerror}") from None
    if done.returncode and not _UNDECIDED.search(done.stdout):
        said = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
        raise BisectError(f"git {' '.join(words[:2])}: {said}")
    return done.stdout.strip()
