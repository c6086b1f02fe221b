"""Baselines: the known violations of one target version, each with its reason; strict both ways but for races."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import Field

from miles_sim.document import Document, DocumentError, read


class Known(Document):
    """A contract that is known to be violated in certain cases."""

    contract: str
    scenarios: tuple[str, ...] = Field(min_length=1)
    """Case names, `scenario/session`, each spelled out."""
    reason: str = Field(min_length=1)
    link: str = Field(min_length=1)
    """Where it is reported or explained."""
    varies: bool = False
    """It fails in some runs and holds in others, a race as the reason says: neither is an error."""


class Baseline(Document):
    """What is known of one target version."""

    target: str
    version: str
    known: tuple[Known, ...]

    def reasons(self) -> Mapping[tuple[str, str], Known]:
        """(case, contract) to its entry."""
        return {(scenario, entry.contract): entry for entry in self.known for scenario in entry.scenarios}


def load_baseline(path: str | Path, *, contracts: Iterable[str]) -> Baseline:
    """A baseline file; entries for a contract that does not exist, or listed twice, are refused."""
    import yaml

    path = Path(path)
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DocumentError(f"baseline: {path}: {error.strerror or error}") from None
    except yaml.YAMLError as error:
        raise DocumentError(f"baseline: {path}: {' '.join(str(error).split())}") from None
    baseline = read(Baseline, data, name=str(path))
    existing = set(contracts)
    seen: set[tuple[str, str]] = set()
    for number, entry in enumerate(baseline.known):
        if entry.contract not in existing:
            raise DocumentError(f"{path}: known[{number}].contract: {entry.contract!r} is no contract")
        for scenario in entry.scenarios:
            if (scenario, entry.contract) in seen:
                raise DocumentError(f"{path}: known[{number}]: {entry.contract} on {scenario} is listed twice")
            seen.add((scenario, entry.contract))
    return baseline
