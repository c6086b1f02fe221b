"""Bisecting a made-up history: the first bad commit is named, and the checkout is left as it was."""

import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import pytest
from typer.testing import CliRunner

from miles_sim.cli import app
from miles_sim.verify.bisect import BisectError, Bisection, State, bisect

TOY = """
from miles_sim.targets.reference import ReferenceTarget


class Toy(ReferenceTarget):
    async def play(self, job, agent):
        document = await super().play(job, agent)
        for rollout in document["rollouts"]:
            for sample in rollout["samples"]:
                sample["status"] = STATUS or sample["status"]
        return document


"""
"""An adapter whose status is right as long as `STATUS` is empty."""


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=someone", "-c", "user.email=some@one", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Make(Protocol):
    def __call__(self, contents: Sequence[str], subject: str = ...) -> tuple[Path, list[str]]: ...


@pytest.fixture
def history(tmp_path: Path) -> Make:
    """`history(contents)`: a repository with a commit for each content of its file `it.py`; folder and hashes."""

    def make(contents: Sequence[str], subject: str = "state {}") -> tuple[Path, list[str]]:
        folder = tmp_path / "checkout"
        folder.mkdir()
        git(folder, "init", "--quiet", "--initial-branch=main")
        hashes = []
        for number, content in enumerate(contents):
            (folder / "it.py").write_text(content)
            git(folder, "add", "it.py")
            git(folder, "commit", "--quiet", "--allow-empty", "--message", subject.format(number))
            hashes.append(git(folder, "rev-parse", "HEAD"))
        return folder, hashes

    return make


def by_content(seen: list[str]) -> Callable[[Path], Awaitable[tuple[State, str]]]:
    """The state that `it.py` itself names."""

    async def attempt(tree: Path) -> tuple[State, str]:
        content = (tree / "it.py").read_text()
        seen.append(content)
        return State(content.split()[0]), content

    return attempt


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`, git's own too."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def found(folder: Path, good: str, bad: str) -> tuple[Bisection, int]:
    seen: list[str] = []
    return await bisect(folder, good, bad, by_content(seen)), len(seen)


@pytest.mark.parametrize("first", [1, 2, 7, 15])
async def test_the_first_bad_commit_is_named_after_a_logarithm_of_tries(history: Make, first: int) -> None:
    folder, hashes = history([f"{'good' if n < first else 'bad'} {n}" for n in range(16)])
    result, tries = await found(folder, hashes[0], "main")
    assert (result.first_bad, result.subject) == (hashes[first], f"state {first}")
    assert tries <= 2 + 4
    assert len(result.steps) == tries


async def test_commits_that_cannot_be_told_are_skipped(history: Make) -> None:
    folder, hashes = history(["good 0", "skip 1", "good 2", "skip 3", "good 4", "bad 5", "skip 6", "bad 7"])
    result, _ = await found(folder, hashes[0], hashes[-1])
    assert result.first_bad == hashes[5]


async def test_where_skipped_ones_hide_it_all_candidates_are_named(history: Make) -> None:
    folder, hashes = history(["good 0", "good 1", "skip 2", "skip 3", "bad 4"])
    result, _ = await found(folder, hashes[0], hashes[-1])
    assert result.first_bad is None
    assert set(result.candidates) == set(hashes[2:])


@pytest.mark.parametrize(
    "subject", ["{} is the first bad commit of the series", "There are only 'skip'ped commits left to test: {}"]
)
async def test_git_own_words_in_a_subject_end_nothing(history: Make, subject: str) -> None:
    folder, hashes = history([f"{'good' if n < 7 else 'bad'} {n}" for n in range(16)], subject)
    result, _ = await found(folder, hashes[0], hashes[-1])
    assert (result.first_bad, result.subject) == (hashes[7], subject.format(7))


async def test_the_checkout_and_its_git_directory_are_left_as_they_were(history: Make) -> None:
    folder, hashes = history([f"{'good' if n < 3 else 'bad'} {n}" for n in range(6)])
    (folder / "it.py").write_text("a change that was never committed")
    (folder / "more.txt").write_text("nor was this")
    before = snapshot(folder)
    await found(folder, hashes[0], hashes[-1])
    assert snapshot(folder) == before


async def test_stopped_in_the_middle_it_leaves_nothing_behind(history: Make) -> None:
    folder, hashes = history(["good 0", "good 1", "bad 2", "bad 3"])
    before, trees = snapshot(folder), []

    async def stopped(tree: Path) -> tuple[State, str]:
        trees.append(tree)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await bisect(folder, hashes[0], hashes[-1], stopped)
    assert snapshot(folder) == before
    assert not trees[0].parent.exists()


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (["bad 0", "bad 1"], "^good: .* is violated already: bad 0"),
        (["good 0", "good 1"], "^bad: .* is not violated: good 1"),
        (["skip 0", "bad 1"], "^good: .* is not to be told: skip 0"),
    ],
)
async def test_an_end_that_is_not_what_it_is_said_to_be_is_refused(
    history: Make, contents: list[str], message: str
) -> None:
    folder, hashes = history(contents)
    with pytest.raises(BisectError, match=message):
        await found(folder, hashes[0], hashes[-1])


async def test_what_git_does_not_know_is_named(history: Make, tmp_path: Path) -> None:
    folder, hashes = history(["good 0", "bad 1"])
    with pytest.raises(BisectError, match=r"^good: 'v9' is no commit of "):
        await found(folder, "v9", hashes[1])
    plain = tmp_path / "plain"
    plain.mkdir()
    with pytest.raises(BisectError, match=r"^checkout: '.*/plain' is no git repository"):
        await found(plain, hashes[0], hashes[1])


def test_a_contract_of_the_pack_is_bisected_through_an_adapter_in_the_checkout(history: Make) -> None:
    whole, broken, absent = "STATUS = ''", "STATUS = 'pending'", "import there_is_no_such_module"
    states = [whole, absent, whole, broken, absent, broken]
    folder, hashes = history([f"{state}\n{TOY}# {number}\n" for number, state in enumerate(states)])
    before = snapshot(folder)
    words = ["bisect", "--checkout", str(folder), "--good", hashes[0], "--bad", "main", "--target", "it:Toy"]
    result = CliRunner().invoke(app, [*words, "--contract", "status/*", "--scenario", "one-generation/v1"])
    assert result.exit_code == 0, result.output
    assert f"first bad commit: {hashes[3]} state 3" in result.output
    assert snapshot(folder) == before
