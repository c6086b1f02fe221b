"""What each named scenario gives on the reference target, as text that a person can review.

A snapshot pins what comes out; it never makes right what a contract calls wrong, since `test_contracts`
judges the same cases.
"""

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from miles_sim.report.case import case_text
from miles_sim.scenarios import library
from miles_sim.verify.run import Run

CASES = [f"{name}/{session}" for name in library.names() for session in library.load(name).sessions]
LONGEST = 90


class OneTextFile(SingleFileSnapshotExtension):
    """One `.txt` file a case."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.mark.parametrize("name", CASES, ids=[name.replace("/", "-") for name in CASES])
def test_case(name: str, run: Run, snapshot: SnapshotAssertion) -> None:
    text = case_text(run.cases[name])
    assert len(text.splitlines()) <= LONGEST, "a snapshot that nobody reads pins nothing"
    assert text == snapshot(extension_class=OneTextFile), f"{name} does not come out as pinned"
