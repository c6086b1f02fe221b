"""What a campaign came to: counted one unit at a time, so that its memory does not grow."""

from collections import Counter

from miles_sim.campaign.unit import Unit
from miles_sim.document import Document
from miles_sim.faults.catalogue import kinds


class KindCount(Document):
    """One kind of fault."""

    kind: str
    layer: str
    verdict: str
    fired: int
    rollouts: int
    """Struck by it."""
    idle: int
    """Faults of it that found nothing to strike."""
    violated: int
    """Scenarios in which it struck and a contract was violated."""


class Summary(Document):
    """`rollouts_per_second` and `peak_rss_mb` are measured; all else depends on the settings alone."""

    rollouts: int
    scenarios: int
    samples: int
    faults_fired: int
    violations: int
    """Contracts violated, each once a scenario."""
    false_samples: int
    rollouts_per_second: float | None = None
    """Of this run, from its first scenario to its last, on all its processes."""
    peak_rss_mb: float | None = None
    """The largest process of this run."""
    by_kind: tuple[KindCount, ...] = ()
    by_contract: dict[str, int] = {}
    """Contract to the scenarios that violated it."""


class Tally:
    """Adds units up."""

    def __init__(self) -> None:
        self.rollouts = self.scenarios = self.samples = self.false_samples = 0
        self._fired: Counter[str] = Counter()
        self._struck: Counter[str] = Counter()
        self._idle: Counter[str] = Counter()
        self._violated: Counter[str] = Counter()
        self._contracts: Counter[str] = Counter()

    @property
    def fired(self) -> int:
        return self._fired.total()

    @property
    def violations(self) -> int:
        return self._contracts.total()

    def add(self, unit: Unit) -> None:
        self.scenarios += 1
        self.rollouts += unit.rollouts
        self.samples += unit.samples
        self.false_samples += unit.false_samples
        self._fired.update(unit.fired)
        self._struck.update(unit.struck)
        self._idle.update(unit.idle)
        if unit.broken:
            self._violated.update(unit.fired.keys())
        self._contracts.update(broken.contract for broken in unit.broken)

    def summary(self) -> Summary:
        """What was added so far."""
        catalogue = kinds()
        seen = [name for name in catalogue if self._fired[name] or self._idle[name]]
        return Summary(
            rollouts=self.rollouts,
            scenarios=self.scenarios,
            samples=self.samples,
            faults_fired=self.fired,
            violations=self.violations,
            false_samples=self.false_samples,
            by_kind=tuple(
                KindCount(
                    kind=name,
                    layer=catalogue[name].layer,
                    verdict=catalogue[name].verdict,
                    fired=self._fired[name],
                    rollouts=self._struck[name],
                    idle=self._idle[name],
                    violated=self._violated[name],
                )
                for name in seen
            ),
            by_contract=dict(sorted(self._contracts.items())),
        )
