"""What a campaign is: all that decides its results, and nothing that does not."""

from fnmatch import fnmatchcase

from pydantic import Field

from miles_sim.document import Document
from miles_sim.faults.catalogue import kinds


class CampaignError(ValueError):
    """A campaign that cannot begin, or cannot go on from what is there."""


class CampaignSettings(Document):
    """The same settings give the same results, on one process or on a hundred machines."""

    seed: int = Field(default=0, ge=0)
    rollouts: int = Field(ge=1)
    """In all."""
    per_unit: int = Field(default=8, ge=1, le=256)
    """Rollouts of one random scenario: they share an engine and a session server, and are struck one by one."""
    faults: tuple[str, ...] = ("*",)
    """Globs over the names of kinds. None: a campaign without faults."""
    contracts: tuple[str, ...] = ()
    """Globs over contracts; none: all."""
    packs: tuple[str, ...] = ()
    """Folders of own contracts, beside the built-in pack; each is there wherever the campaign plays."""
    target: str = "reference"
    python: str | None = None
    optimize: bool = False
    checkout: str | None = None

    @property
    def units(self) -> int:
        """Scenarios in all."""
        return -(-self.rollouts // self.per_unit)

    def rollouts_of(self, unit: int) -> int:
        """Of the scenario of that number; the last one has what is left."""
        return min(self.per_unit, self.rollouts - unit * self.per_unit)


def chosen_kinds(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the kinds that a pattern matches, sorted. CampaignError for a pattern without any."""
    known = sorted(kinds())
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise CampaignError(f"faults: {pattern!r} matches none of the {len(known)} kinds (`miles-sim faults`)")
    return tuple(name for name in known if any(fnmatchcase(name, pattern) for pattern in patterns))
