"""What each contract looks at in each scenario is committed, so that lost coverage shows in a diff."""

from pathlib import Path

from miles_sim.verify.run import Run
from miles_sim.verify.witnesses import COMMAND, witness_text

INDEX = Path(__file__).parent / "witnesses.txt"


def test_the_witness_index_is_current(run: Run) -> None:
    assert INDEX.read_text(encoding="utf-8") == witness_text(run.report), f"read the diff of: {COMMAND} > {INDEX.name}"
