"""What is wrong with a run, grouped: one group a rule and shape of message, the gravest first."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from miles_sim.verify.report import ContractView, Finding, Report, Result, Verdict
from miles_sim.verify.rule import Case

_FIGURE = re.compile(r"\d+(\.\d+)?")
_SEVERITIES = ("must", "should", "pin")


@dataclass(frozen=True)
class Hit:
    """One finding, and the result it belongs to."""

    result: Result
    finding: Finding


@dataclass(frozen=True)
class Group:
    """Findings of one contract that say the same, whatever figures stand in their messages."""

    contract: ContractView
    shape: str
    hits: tuple[Hit, ...]

    @property
    def cases(self) -> tuple[str, ...]:
        """Names of the cases it was found in, in the run's order."""
        return tuple(dict.fromkeys(hit.result.scenario for hit in self.hits))

    def telling(self, cases: Mapping[str, Case]) -> Hit:
        """The hit to show: one that names tokens before one that does not, then the shortest sample."""
        return min(self.hits, key=lambda hit: (not hit.finding.tokens, _length(hit, cases)))


def groups(report: Report, verdicts: Iterable[Verdict] = (Verdict.VIOLATION, Verdict.UNEXPECTED_PASS)) -> list[Group]:
    """Results with one of `verdicts`, grouped; by severity, then by how many cases, then by name."""
    wanted = frozenset(verdicts)
    found: dict[tuple[str, str], list[Hit]] = {}
    for result in report.results:
        if result.verdict in wanted:
            for finding in result.findings or (Finding(where=result.where or "case", message=result.message),):
                found.setdefault((result.contract, shape(finding.message)), []).append(Hit(result, finding))
    contracts = {contract.id: contract for contract in report.contracts}
    made = [Group(contracts[id], shape, tuple(hits)) for (id, shape), hits in found.items()]
    return sorted(made, key=_gravest_first)


def shape(message: str) -> str:
    """A message without its figures: what differs in them alone is told once."""
    return _FIGURE.sub("#", message)


def _gravest_first(group: Group) -> tuple[int, int, str, str]:
    return _SEVERITIES.index(group.contract.severity), -len(group.cases), group.contract.id, group.shape


def _length(hit: Hit, cases: Mapping[str, Case]) -> int:
    """Ids of the sample; without one, of all samples of the case."""
    case, finding = cases.get(hit.result.scenario), hit.finding
    if case is None:
        return 0
    rollouts = list(case.observation.rollouts) if finding.rollout is None else []
    if finding.rollout is not None and finding.rollout < len(case.observation.rollouts):
        rollouts = [case.observation.rollouts[finding.rollout]]
    lengths = [len(sample.tokens) for rollout in rollouts for sample in rollout.samples]
    return lengths[finding.sample] if finding.sample is not None and finding.sample < len(lengths) else sum(lengths)
