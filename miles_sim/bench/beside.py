"""miles' side of a benchmark, in the interpreter that has it."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from miles_sim.bench import miles_side
from miles_sim.bench.load import BenchError
from miles_sim.targets import miles as adapter


@dataclass(frozen=True)
class Miles:
    """Where miles is: an interpreter, and a source tree in place of what it has installed."""

    python: str
    checkout: str | None = None

    def measured(self, kind: str, **job: Any) -> Any:
        """The figures of `miles_side.py`; BenchError with what it said last where it fails."""
        job["adapter"] = str(Path(adapter.__file__).parent)
        command = [self.python, str(Path(miles_side.__file__)), kind, *([self.checkout] if self.checkout else [])]
        try:
            done = subprocess.run(command, input=orjson.dumps(job), capture_output=True, check=False)
        except OSError as error:
            raise BenchError(f"{self.python}: cannot be run: {error}") from error
        if done.returncode or not done.stdout:
            raise BenchError(f"{' '.join(command)}: failed:\n{done.stderr.decode(errors='replace')[-2_000:]}")
        return orjson.loads(done.stdout)
